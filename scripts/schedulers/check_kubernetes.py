"""Checks examples/kubernetes: the files against Kubernetes' schemas, and the container's command for each exit code.

`check_kubernetes.py PROGRAM`, with the packages kubernetes-validate and PyYAML. No cluster runs here: what a Job makes of the
container's exit code is read from its podFailurePolicy.
"""

import signal
import subprocess
import sys
import time

import kubernetes_validate
import yaml

from scenes import CODES, EXAMPLES, Scenes, check

FILE = EXAMPLES / "kubernetes" / "studysync.yaml"
# The night with a bucket in place of a volume.
BUCKET_FILE = EXAMPLES / "kubernetes" / "studysync-bucket.yaml"
# A backfill by several pods.
WORKERS_FILE = EXAMPLES / "kubernetes" / "studysync-workers.yaml"
# The oldest version in which podFailurePolicy is stable, and the newest whose schema is known.
VERSIONS = ("1.31", kubernetes_validate.latest_version())
# By exit code of the run: the container's exit code, the reaction of the Job, and the termination
# message.
EXPECTED = {
    0: (0, "succeeds", ""),
    1: (1, "tries again", ""),
    2: (2, "fails", ""),
    3: (0, "succeeds", "NEEDS A LOOK"),
    4: (4, "fails", ""),
    5: (0, "succeeds", "another run"),
    6: (0, "succeeds", "stopped early"),
}


def read(file=FILE):
    return {(one["kind"], one["metadata"]["name"]): one for one in yaml.safe_load_all(file.read_text())}


def validate(resources):
    for version in VERSIONS:
        for resource in resources.values():
            kubernetes_validate.validate(resource, version, strict=True)
    for (kind, name), resource in resources.items():
        if kind not in ("CronJob", "Job"):
            continue
        job = resource["spec"]["jobTemplate"]["spec"] if kind == "CronJob" else resource["spec"]
        pod = job["template"]["spec"]
        (container,) = pod["containers"]
        check(pod["restartPolicy"] == "Never" and pod["securityContext"]["runAsNonRoot"], f"{name}: the pod's rights or restarts")
        check(container["securityContext"]["readOnlyRootFilesystem"], f"{name}: a root that can be written")
        wanted = {mount["name"] for mount in container["volumeMounts"]}
        check(wanted == {volume["name"] for volume in pod["volumes"]}, f"{name}: volumes that are not mounted, or not there")
    print(f"kubernetes: {len(resources)} resources valid for versions {' and '.join(VERSIONS)}")


def what_the_job_does(job, code):
    if code == 0:
        return "succeeds"
    for rule in job["podFailurePolicy"]["rules"]:
        if code in rule.get("onExitCodes", {}).get("values", []):
            return {"FailJob": "fails", "Ignore": "starts anew without end", "Count": "tries again"}[rule["action"]]
    return "tries again" if job["backoffLimit"] > 0 else "fails"


def command(container, scenes, folder):
    """The container's command with this folder in the place of its volumes."""
    places = {"/data": folder, "/etc/studysync": folder, "/run/secrets/studysync": folder, "/dev/termination-log": folder / "message"}
    words = []
    for word in [*container["command"], *container.get("args", [])]:
        for place, instead in places.items():
            word = word.replace(place, str(instead))
        words.append(word)
    return dict(args=words, cwd=folder, env={"PATH": scenes.path}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def message(folder):
    path = folder / "message"
    return path.read_text() if path.exists() else ""


def run_the_night(scenes, job):
    (container,) = job["template"]["spec"]["containers"]
    for code in CODES:
        folder = scenes.folder(code)
        done = subprocess.run(**command(container, scenes, folder))
        exit_code, then, said = EXPECTED[code]
        check(done.returncode == exit_code, f"exit code {code}: the container ended with {done.returncode}\n{done.stdout}")
        check(what_the_job_does(job, done.returncode) == then, f"exit code {code}: the Job {what_the_job_does(job, done.returncode)}")
        check(said in message(folder) and bool(said) == bool(message(folder)), f"exit code {code}: the message is {message(folder)!r}")
    # A pod is stopped: the run receives the signal and ends in order, and the container has the
    # run's exit code.
    folder = scenes.folder(0)
    config = folder / "studysync.toml"
    config.write_text(config.read_text().replace(scenes.address("healthy"), scenes.address("slow")))
    with subprocess.Popen(**command(container, scenes, folder)) as process:
        while not (folder / "studysync-state/checkpoints.sqlite").exists():
            time.sleep(0.1)
        time.sleep(0.5)
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=60)
        check(process.returncode == 130 and '"exit_code":130' in out, f"SIGTERM: {process.returncode}\n{out}")


def run_the_config_map(scenes, resources):
    """The configuration as it stands, but for the address; and the alert before and after a night."""
    folder = scenes.folder(0)
    text = resources["ConfigMap", "studysync"]["data"]["studysync.toml"].replace("https://api.example.com", scenes.address("healthy"))
    (folder / "studysync.toml").write_text(text.replace("/data/", f"{folder}/").replace("/run/secrets/studysync/", f"{folder}/"))
    job = lambda name: resources["CronJob", name]["spec"]["jobTemplate"]["spec"]
    (lag,), (night,) = (job(name)["template"]["spec"]["containers"] for name in ("studysync-lag", "studysync"))
    before = subprocess.run(**command(lag, scenes, folder))
    check(before.returncode == 3 and before.stdout.startswith("BEHIND"), f"the alert before a night: {before}")
    check(what_the_job_does({"podFailurePolicy": {"rules": []}} | job("studysync-lag"), 3) == "fails", "the alert fails no Job")
    check(subprocess.run(**command(night, scenes, folder)).returncode == 0, "a night with the ConfigMap")
    check(subprocess.run(**command(lag, scenes, folder)).returncode == 0, "the alert after a night")
    check((folder / "warehouse-parquet").is_dir(), "the configuration was not used")


def run_the_workers(scenes, job):
    (container,) = job["template"]["spec"]["containers"]
    first = scenes.shared_folder()
    for index in range(job["completions"]):
        # Each pod has a volume of its own.
        folder = scenes.shared_folder(first / "warehouse.duckdb")
        arguments = command(container, scenes, folder)
        arguments["env"] |= {"JOB_COMPLETION_INDEX": str(index)}
        done = subprocess.run(**arguments)
        check(done.returncode == 0, f"pod {index} ended with {done.returncode}\n{done.stdout}")
    scenes.check_shared(first, "kubernetes: the pods")
    for code, reaction in ((2, "fails"), (4, "fails"), (1, "tries again"), (6, "tries again")):
        check(what_the_job_does({"backoffLimit": job["backoffLimitPerIndex"]} | job, code) == reaction, f"the workers and exit code {code}")


def main():
    resources = read()
    validate(resources)
    in_bucket = read(BUCKET_FILE)
    validate(in_bucket)
    workers = read(WORKERS_FILE)
    validate(workers)
    container = lambda found: found["CronJob", "studysync"]["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"][0]
    check(container(in_bucket)["args"] == container(resources)["args"], "the nights have different commands")
    cron = resources["CronJob", "studysync"]["spec"]
    job = cron["jobTemplate"]["spec"]
    check(cron["concurrencyPolicy"] == "Forbid" and job["activeDeadlineSeconds"] > 3 * 3600, "the limits of the night")
    with Scenes(sys.argv[1]) as scenes:
        run_the_night(scenes, job)
        run_the_config_map(scenes, resources)
        run_the_workers(scenes, workers["Job", "studysync-workers"]["spec"])
    print("kubernetes: the commands of 2 CronJobs run for each exit code, and those of 8 workers")


if __name__ == "__main__":
    main()
