{# Attaches the Iceberg catalog of STUDYSYNC_ICEBERG_CATALOG, and creates the views of studysync over its tables. Only for the target iceberg. #}
{% macro attach_iceberg() %}
    {% if execute and target.name == 'iceberg' %}
        {% set id, secret = env_var('STUDYSYNC_ICEBERG_CREDENTIAL').split(':', 1) %}
        {% set catalog = env_var('STUDYSYNC_ICEBERG_CATALOG') %}
        {% set endpoint = env_var('AWS_ENDPOINT_URL', 'https://s3.amazonaws.com') %}
        {% for extension in ['httpfs', 'avro', 'iceberg'] %}
            {% do run_query('LOAD ' ~ extension) %}
        {% endfor %}
        {% do run_query("CREATE OR REPLACE SECRET (TYPE s3, KEY_ID '" ~ env_var('AWS_ACCESS_KEY_ID') ~ "', SECRET '" ~ env_var('AWS_SECRET_ACCESS_KEY')
            ~ "', REGION '" ~ env_var('AWS_REGION', 'us-east-1') ~ "', URL_STYLE 'path', USE_SSL " ~ endpoint.startswith('https')
            ~ ", ENDPOINT '" ~ endpoint.split('://')[1] ~ "')") %}
        {% do run_query("ATTACH IF NOT EXISTS '" ~ env_var('STUDYSYNC_ICEBERG_WAREHOUSE') ~ "' AS lake (TYPE iceberg, ENDPOINT '" ~ catalog ~ "', CLIENT_ID '"
            ~ id ~ "', CLIENT_SECRET '" ~ secret ~ "', OAUTH2_SERVER_URI '" ~ env_var('STUDYSYNC_ICEBERG_OAUTH_URL', catalog ~ '/v1/oauth/tokens') ~ "')") %}
        {% set views = run_query("SELECT content FROM read_text('../iceberg/views_duckdb.sql')").columns[0].values()[0] %}
        {% do run_query('USE studysync.main; ' ~ views.replace('lake.studysync.', 'lake.' ~ env_var('STUDYSYNC_ICEBERG_NAMESPACE', 'studysync') ~ '.')
            ~ ' USE ' ~ target.database) %}
    {% endif %}
{% endmacro %}
