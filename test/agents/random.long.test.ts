import { assert, it } from "@effect/vitest"
import { TestRuntime } from "duroxide-prisma/testing"
import { Chat, LanguageModel } from "effect/ai"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Stream from "effect/Stream"
import fc from "fast-check"
import * as ModelServer from "../programs/modelServer.ts"
import { start, Tools, wait, withModel } from "./running.ts"

/** What a model does in one answer: calls of a tool, and in the end a text; and how often it fails before. */
const Answers = fc.array(
  fc.record({
    cities: fc.array(fc.constantFrom("Rome", "Oslo", "Quito"), { minLength: 1, maxLength: 3 }),
    failures: fc.integer({ min: 0, max: 2 }),
    streamed: fc.boolean()
  }),
  { maxLength: 4 }
)

type Answers = ReadonlyArray<{
  readonly cities: ReadonlyArray<string>
  readonly failures: number
  readonly streamed: boolean
}>

/** An ordinary program of Effect AI. Answers with the last text and all that was said. */
const program = (answers: Answers, pause: Effect.Effect<void>) =>
  Effect.gen(function*() {
    const chat = yield* Chat.empty
    let prompt = "go"
    for (let round = 0; round <= answers.length; round++) {
      // Results stand in the order in which tools end.
      const options = { prompt: prompt === "" ? [] : prompt, toolkit: Tools.toolkit, concurrency: 1 }
      prompt = ""
      if (answers[round]?.streamed === true) yield* Stream.runDrain(chat.streamText(options))
      else yield* chat.generateText(options)
      yield* pause
    }
    const { text } = yield* LanguageModel.generateText({ prompt: "sum up" })
    return [text, JSON.parse(yield* chat.exportJson)]
  })

const answerOf = (answers: Answers) => ({ messages }: ModelServer.ModelRequest): ModelServer.Answer => {
  const round = messages.filter(({ role }) => role === "assistant").length
  const cities = messages[0]?.content === "sum up" ? undefined : answers[round]?.cities
  return cities === undefined
    ? { text: `end of ${round}` }
    : { calls: cities.map((city, index) => ({ id: `${round}/${index}`, name: "Weather", params: { city } })) }
}

const weather = (city: string) => city === "Oslo" ? Effect.fail("unknown") : Effect.succeed({ celsius: city.length })

it.effect("a program that fails and crashes on its way says and asks the same as one that runs through without a store", () =>
  Effect.promise(() =>
    fc.assert(
      fc.asyncProperty(Answers, fc.integer({ min: 0, max: 3 }), (answers, crashes) =>
        Effect.gen(function*() {
          const plain = yield* Effect.scoped(Effect.gen(function*() {
            const server = yield* ModelServer.start(answerOf(answers))
            const handlers = Tools.toolkit.toLayer({
              Weather: ({ city }) => weather(city),
              Pay: () => Effect.succeed("")
            })
            const value = yield* program(answers, Effect.void).pipe(
              Effect.provide(Layer.merge(ModelServer.layerModel(server.url), handlers))
            )
            return { value, requests: server.requests }
          }))
          const failed = new Map<string, number>()
          const ran: Array<string> = []
          yield* withModel(
            () => program(answers, Effect.sleep("1 minute")),
            (request) => {
              const round = request.messages.filter(({ role }) => role === "assistant").length
              const prompt = JSON.stringify(request.messages)
              const failures = failed.get(prompt) ?? 0
              if (failures < (answers[round]?.failures ?? 0)) {
                failed.set(prompt, failures + 1)
                return { status: 500 }
              }
              return answerOf(answers)(request)
            },
            ({ requests }) =>
              Effect.gen(function*() {
                yield* start
                for (let crash = 0; crash < crashes; crash++) {
                  yield* TestRuntime.advance("40 seconds")
                  yield* TestRuntime.crash
                }
                const fiber = yield* Effect.forkChild(wait)
                assert.deepStrictEqual(JSON.parse(JSON.stringify(yield* Fiber.join(fiber))), plain.value)
                const distinct = [...new Map(requests.map((request) => [JSON.stringify(request), request])).values()]
                assert.deepStrictEqual(distinct, plain.requests)
                const retries = [...failed.values()].reduce((sum, failures) => sum + failures, 0)
                assert.strictEqual(requests.length, plain.requests.length + retries)
                assert.lengthOf(ran, answers.flatMap(({ cities }) => cities).length)
              }),
            { weather: (city) => Effect.suspend(() => (ran.push(city), weather(city))) }
          )
        }).pipe(Effect.provide(Logger.layer([])), Effect.runPromise)),
      { numRuns: 25 }
    )
  ))
