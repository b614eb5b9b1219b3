/**
 * The services `effect/cli` asks for.
 *
 * It uses them for prompts, for its wizard and for flags that read files, which the commands here do not have: they run
 * in scripts, and check their files themselves. So these lines take the place of `@effect/platform-node-shared` and of
 * what that depends on.
 */
import * as Effect from "effect/Effect"
import * as FileSystem from "effect/FileSystem"
import * as Layer from "effect/Layer"
import * as Path from "effect/Path"
import * as ChildProcessSpawner from "effect/process/ChildProcessSpawner"
import * as Stdio from "effect/Stdio"
import * as Terminal from "effect/Terminal"
import type { Io } from "./io.ts"

export const layer = (io: Io) =>
  Layer.mergeAll(
    Path.layer,
    Stdio.layerTest({
      args: Effect.succeed(io.args),
      stdoutIsTerminal: Effect.succeed(io.stdout.isTerminal),
      stderrIsTerminal: Effect.succeed(io.stderr.isTerminal)
    }),
    FileSystem.layerNoop({}),
    Layer.succeed(
      Terminal.Terminal,
      Terminal.make({
        columns: Effect.sync(() => io.stdout.columns || 80),
        rows: unused,
        size: unused,
        readInput: unused,
        readLine: unused,
        display: (text) => Effect.sync(() => io.stdout.write(text))
      })
    ),
    Layer.succeed(ChildProcessSpawner.ChildProcessSpawner, ChildProcessSpawner.make(() => unused))
  )

// internal

const unused = Effect.die(new Error("the command line does not prompt"))
