/** What ours can be compared with, and how a peer is installed. */
import { spawnSync } from "node:child_process"
import { existsSync, statSync } from "node:fs"
import { fileURLToPath } from "node:url"
import type { Module } from "./side.ts"

const compiled = (name: string) => fileURLToPath(new URL(`${name}.js`, import.meta.url))

/** With a package file of their own, so that the product does not depend on them. Commands start in the root. */
const folder = "scripts/bench/peers"

export const ours: Module = { name: "ours", path: compiled("ours"), usesPostgres: true }

const installed = (name: string, cannot: Module["cannot"] & {}, usesPostgres = true): Module => ({
  name,
  path: `${folder}/${name}.mjs`,
  usesPostgres,
  cannot: { G: "its rows are put into our tables only", ...cannot }
})

const engine = (name: string, cannot: Module["cannot"] & {} = {}, usesPostgres?: boolean): Module =>
  installed(name, { J: "it runs no plain jobs", ...cannot }, usesPostgres)

/** Without orchestrations. */
const queue = (name: string): Module =>
  installed(name, {
    T: "it has no timers that a job waits for",
    M2: "a process is not notified of jobs that ran in another one"
  })

/** An earlier version of ours: the folder of its repository, built. */
const checkout = (root: string): Module | undefined => {
  const path = `${root}/build/scripts/bench/ours.js`
  return existsSync(path) ? { name: "before", path, usesPostgres: true, isOurs: true } : undefined
}

/** One of these peers, or an earlier version of ours by the folder of its repository. */
export const peerOf = (name: string): Module | undefined => peers[name] ?? checkout(name)

export const peers: Readonly<Record<string, Module>> = {
  "bare": {
    name: "bare",
    path: compiled("bare"),
    usesPostgres: false,
    cannot: { G: "it stores nothing", J: "it runs no plain jobs" }
  },
  "duroxide": engine("duroxide"),
  "duroxide-sqlite": engine(
    "duroxide-sqlite",
    { M2: "its processes share no database", R: "it has no server" },
    false
  ),
  "graphile": queue("graphile"),
  "pg-boss": queue("pg-boss"),
  "dbos": engine("dbos"),
  "effect": engine("effect", { M2: "it runs with one runner" })
}

/** Installs the peers on first use, and when their lockfile has changed. */
export const prepare = (peer: Module): void => {
  if (!peer.path.startsWith(folder)) return
  const installed = `${folder}/node_modules/.package-lock.json`
  const changedAt = (file: string) => statSync(file).mtimeMs
  if (existsSync(installed) && changedAt(installed) >= changedAt(`${folder}/package-lock.json`)) return
  console.log(`Installing the peers in ${folder}.`)
  const { status } = spawnSync("npm", ["ci", "--no-audit", "--no-fund", "--prefix", folder], { stdio: "inherit" })
  if (status !== 0) process.exit(status ?? 1)
}
