"""A warehouse in a bucket of an S3 server on this machine, whose requests take 20 ms longer, against a folder."""

import contextlib
import os
import pathlib
import shutil
import signal
import subprocess

import measure
from delaying_proxy import DelayingProxy
from measure import median
from results import Row
from service import Side

from .backfill import MIB
from .nightly import one_night

DELAY_SECS = 0.020
REPOSITORY = pathlib.Path(__file__).parents[3]
# Prints the address and the key of the server. The process group has the server.
START = '. scripts/s3-server.sh && s3_installed && start_s3 "$1" && echo "$AWS_ENDPOINT_URL $AWS_ACCESS_KEY_ID $AWS_SECRET_ACCESS_KEY" && sleep infinity'


class BucketSide(Side):
    """Each load begins with a new folder of the bucket."""

    loads = 0
    place = "parquet"

    def clear(self):
        BucketSide.loads += 1
        place = f"s3://studysync/load-{BucketSide.loads}"
        self.toml = self.toml.replace(f'parquet = "{self.place}"', f'parquet = "{place}"')
        self.place = place
        return super().clear()


@contextlib.contextmanager
def s3_server(folder):
    """An S3 server, whose address and key are in the variables; gives the proxy before it, or `None` if it cannot be had."""
    folder.mkdir()
    process = subprocess.Popen(["bash", "-c", START, "-", folder], cwd=REPOSITORY, stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        started = process.stdout.readline().split()
        if not started:
            yield None
            return
        address, key, secret = started
        with DelayingProxy(address.removeprefix("http://"), DELAY_SECS) as proxy:
            os.environ |= {"AWS_ENDPOINT_URL": proxy.address, "AWS_ACCESS_KEY_ID": key, "AWS_SECRET_ACCESS_KEY": secret, "AWS_REGION": "us-east-1"}
            yield proxy
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def measure_bucket(setting, table):
    with s3_server(setting.folder / "s3") as proxy:
        if proxy is None:
            measure.tell("  SKIPPED: the S3 server cannot be installed")
            return
        backfill(setting, table, proxy)
        nightly(setting, table, proxy)


def backfill(setting, table, proxy):
    with setting.service(setting.rows, setting.days()) as service:
        folder = Side(setting.program, setting.folder / "folder", service, warehouses=("parquet",))
        bucket = BucketSide(setting.program, setting.folder / "bucket", service, warehouses=("parquet",))
        costs = measure.alternate(setting.rounds, {"folder": folder.first_load, "bucket": bucket.first_load})
    requests = len(proxy.take_requests()) // setting.rounds
    here, there = median(costs["folder"]), median(costs["bucket"])
    table.add(Row("bucket backfill", f"backfill into a bucket, {DELAY_SECS * 1000:.0f} ms a request, against a folder", "≤ 1.3", there / here, 1.3, True,
                  f"{there:.2f} s ({measure.spread(costs['bucket'])}), {requests} requests", f"{here:.2f} s ({measure.spread(costs['folder'])})"))
    here, there = (median(costs[name], "peak_rss_bytes") / MIB for name in ("folder", "bucket"))
    table.add(Row("bucket memory", "the same: peak memory, bucket against folder", "≤ 1.1", there / here, 1.1, True, f"{there:.0f} MiB", f"{here:.0f} MiB"))


def nightly(setting, table, proxy):
    """Requests of a night with 1,000 edits, against those of an ideal writer: one list, one read and one write for each changed file, the commit
    and the ledger. The first night has no working copy."""
    rows = setting.big_rows or setting.rows
    with setting.service(rows, max(3, rows // 2740)) as service:
        side = BucketSide(setting.program, setting.folder / "bucket", service, ["with_deleted_responses"], ("parquet",), archive=False)
        side.first_load()
        side.run("sync", "--json")
        shutil.rmtree(side.folder / "studysync-state" / "parquet")
        nights = []
        for seed in range(1, setting.rounds + 2):
            proxy.take_requests()
            cost = one_night(service, side, seed)
            nights.append((*against_ideal(proxy.take_requests()), cost))
    without_copy, *others = nights
    others.sort(key=lambda night: night[0] / night[1])
    needed, ideal, cost = others[len(others) // 2]
    table.add(Row("bucket nightly", f"requests of a sync of 1,000 changed rows among {rows:,} in a bucket, against an ideal writer", "≤ 1.2", needed / ideal, 1.2, True,
                  f"{needed} requests, {cost.wall_secs:.2f} s", f"{ideal} requests"))
    needed, ideal, cost = without_copy
    table.add(Row("bucket nightly without copy", "the same without a working copy", "", needed / ideal, None, True, f"{needed} requests, {cost.wall_secs:.2f} s", f"{ideal} requests"))


def against_ideal(requests):
    written = {path for method, path in requests if method == "PUT" and path.endswith("/data.parquet") and "/sync_" not in path}
    return len(requests), 1 + 2 * len(written) + 2
