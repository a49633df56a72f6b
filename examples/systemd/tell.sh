#!/bin/sh
# Started by OnSuccess= and OnFailure= of a unit. systemd (251 or newer) says in MONITOR_* which unit ended, and how.
set -u
case $MONITOR_SERVICE_RESULT:${MONITOR_EXIT_STATUS:-} in
    success:3) what="is done, and something needs a look" ;;
    success:*) exit 0 ;;
    *:2) what="cannot start: the configuration is wrong" ;;
    *:3) what="found streams that are further behind than they may be" ;;
    *:4) what="failed: the service refused the key" ;;
    *) what="failed: $MONITOR_SERVICE_RESULT, exit status ${MONITOR_EXIT_STATUS:-unknown}" ;;
esac
journalctl --no-pager --output=cat "_SYSTEMD_INVOCATION_ID=$MONITOR_INVOCATION_ID" | tail -n 50 |
    mail -s "$MONITOR_UNIT $what" "$MAIL_TO"
