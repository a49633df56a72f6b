// The program under test: a sandbox as the service, a folder, and `serve`.

import { spawn, spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const KEY = "key-of-the-browser-test";
const SECRET = "webhook-secret-of-the-browser-test";

// Starts a command and returns it with the address that it prints.
async function listening(program, args, options) {
  const child = spawn(program, args, { ...options, stdio: ["ignore", "pipe", "pipe"] });
  const text = [];
  const address = await new Promise((found, failed) => {
    const hear = (data) => {
      text.push(data);
      const address = text.join("").match(/http:\/\/[0-9.:]+/);
      if (address) found(address[0]);
    };
    child.stdout.on("data", hear);
    child.stderr.on("data", hear);
    child.on("exit", (code) => failed(new Error(`${args[0]} ended with ${code}: ${text.join("")}`)));
  });
  return { child, address, log: () => text.join("") };
}

export class Program {
  #path;
  #children = [];

  constructor(path) {
    this.#path = path;
    this.folder = mkdtempSync(join(tmpdir(), "studysync-browser-"));
  }

  async start({ sandbox, serve, environment = {} }) {
    const { address: service } = await this.#run(["sandbox", "--api-key", KEY, "--listen", "127.0.0.1:0", ...sandbox], process.env);
    writeFileSync(
      join(this.folder, "studysync.toml"),
      `[service]\nbase_url = "${service}"\n[warehouse]\nduckdb = "warehouse.duckdb"\n[serve]\nlisten = "127.0.0.1:0"\n${serve}`,
    );
    this.environment = { ...process.env, STUDYSYNC_API_KEY: KEY, STUDYSYNC_WEBHOOK_SECRET: SECRET, ...environment };
    const { address } = await this.#run(["serve"], this.environment);
    this.address = address;
  }

  async #run(args, env) {
    const started = await listening(this.#path, args, { cwd: this.folder, env });
    this.#children.push(started.child);
    return started;
  }

  // Runs a command to its end, which must have this exit code.
  command(args, code, environment = {}) {
    const done = spawnSync(this.#path, args, { cwd: this.folder, env: { ...this.environment, ...environment }, encoding: "utf8" });
    if (done.status !== code) throw new Error(`${args.join(" ")} ended with ${done.status}: ${done.stderr}`);
    return done;
  }

  // The number of open connections to `serve`; `serve` closes idle ones after ten seconds.
  connections() {
    const port = Number(new URL(this.address).port).toString(16).toUpperCase().padStart(4, "0");
    const lines = readFileSync("/proc/net/tcp", "utf8").split("\n").map((line) => line.trim().split(/\s+/));
    return lines.filter(([, local, , state]) => local?.endsWith(`:${port}`) && state === "01").length;
  }

  stop() {
    this.#children.forEach((child) => child.kill("SIGKILL"));
    rmSync(this.folder, { recursive: true, force: true });
  }
}
