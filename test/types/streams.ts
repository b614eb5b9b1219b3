// Deliberate mistakes that tsc must find.
// @effect-diagnostics floatingEffect:off missingEffectContext:off
/**
 * Where a stream can be appended to and resumed, and what a reader gets: checked by `tsc`, never run.
 */
import { expectTypeOf } from "@effect/vitest"
import { Activity, Client, Orchestration, ProgressStream, Runtime } from "duroxide-prisma"
import type { ProviderError } from "duroxide-prisma/provider"
import * as Effect from "effect/Effect"
import * as Schema from "effect/Schema"
import type * as Stream from "effect/Stream"

const Tokens = ProgressStream.make("tokens", { chunk: Schema.String })
const Steps = ProgressStream.make("steps", { chunk: { step: Schema.Int } })
const Think = Activity.make("Think")
const Chat = Orchestration.make("Chat")

/** append: in programs and handlers, nowhere else. */
export const append = (client: Client.Client["Service"]) => {
  expectTypeOf(Tokens.append).toEqualTypeOf<
    (chunk: string) => Effect.Effect<void, never, ProgressStream.StreamWriter>
  >()
  const handlers = [Chat.toLayer(() => Tokens.append("a")), Think.toLayer(() => Tokens.appendAll(["a"]))] as const
  expectTypeOf(Runtime.layer({ orchestrations: [Chat], activities: [Think] })).not.toBeAny()
  // @ts-expect-error no writer
  Effect.runFork(Tokens.append("a"))
  Effect.runFork(ProgressStream.ignoring(Tokens.append("a")))
  // @ts-expect-error not a text
  Tokens.append(1)
  // @ts-expect-error programs do not resume
  Chat.toLayer(() => Effect.asVoid(Tokens.resume))
  Think.toLayer(() => Effect.asVoid(Tokens.resume))
  Steps.append({ step: 1 })
  return [client, handlers]
}

/** readStream: typed chunks, and errors that say what to do. */
export const read = (client: Client.Client["Service"]) => {
  expectTypeOf(client.readStream(Steps, "i", { from: 3 })).toEqualTypeOf<
    Stream.Stream<
      ProgressStream.Entry<{ readonly step: number }>,
      ProgressStream.ChunksMissing | Client.PayloadMismatch | ProviderError.ProviderError
    >
  >()
}
