#!/bin/sh
# The nightly run under cron: keeps a log, and prints only what somebody must read, because cron mails whatever a job prints.
# Install it beside studysync.toml; it works in the folder that it is in.
#
#   exit code        what happens
#   0                nothing is printed
#   3                the log is printed: the run is done, and something needs a look
#   5, 6, 130        nothing is printed: another run is at work, or this one stopped early, and the next run resumes;
#                    `status --max-lag` tells if the warehouse falls behind
#   1                three more attempts, 20 minutes apart; the log is printed if the last one fails as well
#   2, 4, any other  the log is printed at once: another attempt would fail in the same way
set -u
umask 077
cd "$(dirname "$0")" || exit 2

attempts=0
while :; do
    studysync sync --deadline 3h --json >>runs.ndjson 2>last-run.log
    code=$?
    cat last-run.log >>sync.log
    attempts=$((attempts + 1))
    [ "$code" -eq 1 ] && [ "$attempts" -lt 4 ] || break
    sleep "${RETRY_SECONDS:-1200}"
done

case $code in
    0 | 5 | 6 | 130) exit "$code" ;;
    3) echo "The nightly run is done, and something needs a look:" ;;
    1) echo "The nightly run failed $attempts times. What is committed stays, and the next run resumes:" ;;
    2) echo "The nightly run cannot start until somebody mends the configuration:" ;;
    4) echo "The service refused the key. No run can succeed until somebody replaces it:" ;;
    *) echo "The nightly run ended with exit code $code:" ;;
esac
cat last-run.log
exit "$code"
