# Sourced after s3-server.sh by scripts that need catalogs: DuckDB's extensions from PyPI, the version of DuckDB that has extensions
# there, and the Iceberg catalog of the S3 server. `kept` is the folder that stays between runs.

extensions_version=1.5.5
extensions=(ducklake postgres_scanner httpfs avro iceberg)

extensions_installed() { # Installs the extensions into $kept/duckdb and the library into $kept/lib. Fails if they cannot be had.
    [ "$(uname -s)-$(uname -m)" = Linux-x86_64 ] || return 1
    local packages=("${extensions[@]/#/duckdb-extension-}") folder=$kept/duckdb/v$extensions_version/linux_amd64 name file
    installed extensions "${packages[@]/%/==$extensions_version}" || return 1
    scripts/fetch-libduckdb.sh "$kept/lib" tests || return 1
    mkdir -p "$folder"
    for name in "${extensions[@]}"; do
        file=$(echo "$kept"/extensions/lib/python3*/site-packages/"duckdb_extension_$name/extensions/v$extensions_version/$name.duckdb_extension")
        # Programs that have loaded the old file would crash if it were overwritten.
        cmp -s "$file" "$folder/$name.duckdb_extension" || { cp "$file" "$folder/$name.new" && mv "$folder/$name.new" "$folder/$name.duckdb_extension"; }
    done
}

iceberg_catalog() { # FOLDER: prints the address of the Iceberg catalog of the server that start_s3 started with its data in FOLDER.
    for _ in $(seq 300); do
        grep -o 'Iceberg Catalog: *http://[0-9.:]*' "$1/log" | grep -o 'http.*' && return
        sleep 0.1
    done
    return 1
}
