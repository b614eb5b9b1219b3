// Duroxide on PostgreSQL: npm run bench -- S8 --peer duroxide

import { duroxide, open as run } from "./duroxideRuntime.mjs"

export async function open(options) {
  const provider = await duroxide.JsPostgresProvider.connectWithSchema(options.url, "duroxide")
  return run(options, {
    manySlots: 16,
    pollMs: 10,
    runtime: (settings) => duroxide.JsRuntime.fromPostgres(provider, settings),
    client: () => duroxide.JsClient.fromPostgres(provider)
  })
}
