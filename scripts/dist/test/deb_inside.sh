#!/usr/bin/env bash
# Does with the package what an administrator does, from installation to purge. Runs as root in a
# separate machine (deb.sh).
set -euo pipefail
trap 'journalctl --no-pager -u "studysync*" >/root/journal 2>&1' EXIT
cd /root
export DEBIAN_FRONTEND=noninteractive STUDYSYNC=/usr/bin/studysync
config=/etc/studysync/studysync.toml
warehouse=/var/lib/studysync/warehouse/warehouse.duckdb

fail() { echo "failed: $*"; exit 1; }
expect() { [ "$2" = "$3" ] || fail "$1: '$2' instead of '$3'"; }
until_ok() {
    for _ in $(seq 150); do
        if "$@" >/dev/null 2>&1; then return; fi
        sleep 0.2
    done
    fail "$*"
}
as_user() { setpriv --reuid studysync --regid studysync --init-groups env -i PATH=/usr/bin:/bin HOME=/var/lib/studysync "$@"; }
answers() { as_user studysync --config $config query --format csv "SELECT count(*) AS n FROM responses" | tail -1; }

echo "- install"
apt-get install -y -qq ./studysync.deb >/dev/null
for unit in studysync.timer studysync-serve.service; do
    expect "$unit" "$(systemctl is-enabled $unit) $(systemctl is-active $unit)" "disabled inactive"
done
expect "the user's home" "$(getent passwd studysync | cut -d: -f6)" /var/lib/studysync
expect "the state folder" "$(stat -c '%U %G %a' /var/lib/studysync)" "studysync studysync 751"
systemd-analyze verify /usr/lib/systemd/system/studysync{,-serve}.service /usr/lib/systemd/system/studysync.timer
for unit in studysync.service studysync-serve.service; do
    systemd-analyze security --no-pager --threshold=30 $unit | tail -1
done

echo "- configure: the example address is refused, a key without access too"
studysync sandbox --responses 500 --days 5 >/dev/null &
sed -i 's|^base_url = .*|base_url = "http://127.0.0.1:8787"|' $config
if systemctl start studysync.service 2>/dev/null; then fail "it ran without a key"; fi
install -m 0640 -g studysync /dev/stdin /etc/studysync/key <<<sandbox-key
until_ok as_user studysync --config $config check

echo "- the nightly run, by its unit"
systemctl start studysync.service
expect "the unit" "$(systemctl show -P Result studysync.service)" success
expect "the warehouse" "$(stat -c '%U %G %a' $warehouse)" "studysync studysync-readers 640"
[ "$(answers)" -gt 400 ] || fail "too few answers: $(answers)"
systemctl enable --quiet --now studysync.timer
systemctl list-timers --no-pager | grep -q studysync.service || fail "the timer has no next time"

echo "- a reader reads the warehouse, and no secret and no state"
useradd ann
adduser --quiet ann studysync-readers
as_ann() { setpriv --reuid ann --regid ann --init-groups env -C /tmp -i PATH=/usr/bin:/bin HOME=/tmp "$@"; }
[ "$(as_ann studysync query --duckdb $warehouse --format csv "SELECT count(*) FROM responses" | tail -1)" -gt 400 ] || fail "ann cannot read"
for file in /etc/studysync/key /var/lib/studysync/state/checkpoints.sqlite; do
    if as_ann cat $file >/dev/null 2>&1; then fail "ann reads $file"; fi
done
if as_ann ls /var/lib/studysync >/dev/null 2>&1; then fail "ann lists the state folder"; fi

echo "- starts by hand refuse no night"
for _ in $(seq 6); do systemctl start studysync.service || fail "a start by hand is refused"; done

echo "- a first run as root: the hint says how to give the files back"
install -d -m 755 /var/lib/studysync-root
sed 's|/var/lib/studysync/|/var/lib/studysync-root/|' $config >/etc/studysync/root.toml
studysync --config /etc/studysync/root.toml --quiet sync >/dev/null 2>&1 || true
as_user studysync --config /etc/studysync/root.toml sync 2>&1 | grep -q 'chown -R' || fail "no hint to chown"
rm -rf /var/lib/studysync-root /etc/studysync/root.toml

echo "- serve, and its end by SIGTERM"
install -m 0640 -g studysync /dev/stdin /etc/studysync/webhook-secret <<<a-secret-of-webhooks
sed -i 's|^# token_file = |token_file = |' $config
until_ok as_user studysync --config $config check
systemctl enable --quiet --now studysync-serve.service
until_ok as_user studysync --config $config health
systemctl stop studysync-serve.service
expect "the end of serve" "$(systemctl show -P Result -P ExecMainStatus studysync-serve.service | tr '\n' ' ')" "success 0 "

echo "- back up and restore, as docs/howto/restore.md says"
systemctl start studysync-serve.service
before=$(answers)
systemctl stop studysync.timer studysync-serve.service studysync.service
tar -C / -czf /root/backup.tar.gz etc/studysync var/lib/studysync
find /var/lib/studysync -mindepth 1 -delete
tar -C / -xzf /root/backup.tar.gz
systemctl start studysync.timer studysync-serve.service
until_ok as_user studysync --config $config health
expect "the answers after the restore" "$(answers)" "$before"
systemctl start studysync.service
as_user studysync --config $config --quiet verify --from "$(date -d "-6 days" +%F)" >/dev/null || fail "the restored warehouse is not as the service"

echo "- upgrade: the configuration stays, serve runs again"
pid=$(systemctl show -P MainPID studysync-serve.service)
apt-get install -y -qq --reinstall ./studysync.deb >/dev/null
until_ok as_user studysync --config $config health
[ "$(systemctl show -P MainPID studysync-serve.service)" != "$pid" ] || fail "the old program still serves"
grep -q 8787 $config || fail "the configuration is another"

echo "- remove: programs go, configuration and data stay"
apt-get remove -y -qq studysync >/dev/null
[ ! -e /usr/bin/studysync ] && [ ! -e /usr/lib/studysync ] || fail "the program is still there"
if pgrep -u studysync >/dev/null; then fail "something still runs"; fi
[ -e $config ] && [ -e $warehouse ] || fail "configuration or data are gone"

echo "- purge: data stay, all else goes; without data the user goes too"
pkill -f 'studysync sandbox' || true
apt-get purge -y -qq studysync 2>&1 | grep -q '/var/lib/studysync is kept' || fail "nobody was told of the data"
[ ! -e /etc/studysync ] || fail "/etc/studysync is still there"
[ -e $warehouse ] && getent passwd studysync >/dev/null || fail "data or user are gone"
find /var/lib/studysync -mindepth 1 -delete
apt-get install -y -qq ./studysync.deb >/dev/null
apt-get purge -y -qq studysync >/dev/null
if getent passwd studysync >/dev/null || getent group studysync-readers >/dev/null; then fail "user or group are still there"; fi
left=$(find / -xdev -name '*studysync*' -not -path '/root/*' -not -path '/proc/*' -not -path '/var/log/*')
expect "what is left" "$left" ""
echo "the package works"
