// A runtime process that pauses everything: `node pauser.js <database URL>`. Prints `paused`, and serves until it is
// killed.
import { PrismaProvider } from "duroxide-prisma/prisma"
import { Admin, Pause } from "duroxide-prisma/provider"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { RuntimeLive } from "./steps.js"

const App = RuntimeLive.pipe(Layer.provideMerge(PrismaProvider.layer({ url: process.argv[2]!, migrate: "verify" })))

Effect.runFork(Effect.scoped(Effect.gen(function*() {
  const admin = Context.get(yield* Layer.build(App), Admin.Admin)
  yield* admin.pause(Pause.PauseTarget.Everything(), { reason: "a drill" })
  yield* Effect.sync(() => process.stdout.write("paused\n"))
  return yield* Effect.never
})))
