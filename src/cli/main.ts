#!/usr/bin/env node
/**
 * The program `duroxide-prisma`: runs the command of this process, and ends with its exit code.
 */
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import { run } from "./command.ts"
import { exitCodes } from "./internal/failure.ts"
import { ofProcess } from "./internal/io.ts"

// A reader that has seen enough, as `| head`, closes the pipe. `run` reports other errors of standard output.
process.stdout.on("error", (error: NodeJS.ErrnoException) => error.code === "EPIPE" && process.exit(0))
process.stderr.on(
  "error",
  (error: NodeJS.ErrnoException) => process.exit(error.code === "EPIPE" ? 0 : exitCodes.output)
)

const fiber = Effect.runFork(run(ofProcess()))

// The first Ctrl-C gives the command a moment to close what it has opened; the second does not wait.
const exit = () => process.exit(exitCodes.interrupted)
let isInterrupted = false
const interrupt = () => {
  if (isInterrupted) exit()
  isInterrupted = true
  setTimeout(exit, 5_000)
  Effect.runFork(Fiber.interrupt(fiber))
}
process.on("SIGINT", interrupt)
process.on("SIGTERM", interrupt)

fiber.addObserver((exit) => process.exit(exit._tag === "Success" ? exit.value : exitCodes.interrupted))
