/**
 * Prints what the server has logged when a test fails because a statement took too long: who waited for whom, in which
 * function. The server and its log are gone after the run.
 */
import { open } from "node:fs/promises"
import { afterEach, inject } from "vitest"
import type { ProvidedServer } from "./globalSetup.ts"

const lastBytes = 20_000

afterEach(async ({ task }) => {
  const errors = task.result?.errors ?? []
  // Tests without a server share this file.
  const { logFile = null } = (inject("server") as ProvidedServer | undefined) ?? {}
  if (logFile === null || !errors.some(({ message }) => /57014|statement timeout/.test(message))) return
  const file = await open(logFile)
  try {
    const { size } = await file.stat()
    const { buffer, bytesRead } = await file.read(Buffer.alloc(lastBytes), 0, lastBytes, Math.max(0, size - lastBytes))
    console.log(`the server's log when "${task.name}" failed:\n${buffer.toString("utf8", 0, bytesRead)}`)
  } finally {
    await file.close()
  }
})
