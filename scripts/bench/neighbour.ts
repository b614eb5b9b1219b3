/**
 * What our notifications cost an application on the same server: this process inserts single rows, each in a
 * transaction of its own, while a child runs S8. A commit that notifies takes a lock that all such commits of the
 * server share.
 */
import { fork } from "node:child_process"
import { once } from "node:events"
import { fileURLToPath } from "node:url"
import pg from "pg"
import type { Contender, Load } from "./contender.ts"

export const openNeighbour = async (
  { load, url }: { readonly url: string; readonly load: Load }
): Promise<Contender> => {
  const pool = new pg.Pool({ connectionString: url, max: load.inFlight })
  const child = fork(fileURLToPath(new URL("underLoad.js", import.meta.url)), [url, JSON.stringify(load.pollMs)], {
    stdio: ["ignore", 2, 2, "ipc"]
  })
  await once(child, "message")
  await pool.query("CREATE TABLE IF NOT EXISTS neighbour (id bigserial PRIMARY KEY, text text)")
  return {
    execute: async (id) => {
      await pool.query({ name: "insert", text: "INSERT INTO neighbour (text) VALUES ($1)", values: [id] })
    },
    close: async () => {
      child.disconnect()
      await once(child, "exit")
      await pool.end()
    }
  }
}
