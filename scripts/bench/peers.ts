/** What ours can be compared with, and how a peer is installed. */
import { spawnSync } from "node:child_process"
import { existsSync } from "node:fs"
import { fileURLToPath } from "node:url"
import type { Module } from "./side.ts"

const compiled = (name: string) => fileURLToPath(new URL(`${name}.js`, import.meta.url))

/** With a package file of their own, so that the product does not depend on them. Commands start in the root. */
const folder = "scripts/bench/peers"

export const ours: Module = { name: "ours", path: compiled("ours"), usesPostgres: true }

const installed = (name: string, usesPostgres = true): Module => ({
  name,
  path: `${folder}/${name}.mjs`,
  usesPostgres
})

export const peers: Readonly<Record<string, Module>> = {
  "bare": { name: "bare", path: compiled("bare"), usesPostgres: false },
  "duroxide": installed("duroxide"),
  "duroxide-sqlite": installed("duroxide-sqlite", false),
  "graphile": installed("graphile"),
  "dbos": installed("dbos")
}

/** Installs the peers on first use. */
export const prepare = (peer: Module): void => {
  if (!peer.path.startsWith(folder) || existsSync(`${folder}/node_modules/.package-lock.json`)) return
  console.log(`Installing the peers in ${folder}.`)
  const { status } = spawnSync("npm", ["ci", "--no-audit", "--no-fund", "--prefix", folder], { stdio: "inherit" })
  if (status !== 0) process.exit(status ?? 1)
}
