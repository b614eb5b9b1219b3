import { assert, describe, it } from "@effect/vitest"
import { Activity, Client, Orchestration, Runtime, RuntimeConfig, Signal } from "duroxide-prisma"
import { TestRuntime } from "duroxide-prisma/testing"
import * as Clock from "effect/Clock"
import * as DateTime from "effect/DateTime"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Option from "effect/Option"
import * as RateLimiter from "effect/persistence/RateLimiter"
import * as Random from "effect/Random"
import * as Schedule from "effect/Schedule"
import * as Schema from "effect/Schema"
import * as Semaphore from "effect/Semaphore"
import * as Stream from "effect/Stream"
import * as Docs from "../utils/docs.ts"

// -----------------------------------------------------------------------------
// definitions
// -----------------------------------------------------------------------------

const Trip = Schema.Struct({ id: Schema.String, cities: Schema.Array(Schema.String) })
type Trip = typeof Trip.Type

class SoldOut extends Schema.TaggedError<SoldOut>()("SoldOut", { city: Schema.String }) {}

const Book = Activity.make("Book", { payload: Schema.String, success: Schema.String, error: SoldOut })
const Unbook = Activity.make("Unbook", { payload: Schema.String })
const Quote = Activity.make("Quote", { payload: Schema.String, success: Schema.Int })
const Tell = Activity.make("Tell", { payload: Schema.String })
const Confirmed = Signal.make("Confirmed")
const Places = Signal.make("Places", { payload: Schema.String })

const BookTrip = Orchestration.make("BookTrip", {
  payload: Trip,
  success: Schema.Array(Schema.String),
  error: SoldOut
})

const bookAll = Effect.fn(function*(trip: Trip) {
  const bookings = yield* Effect.forEach(trip.cities, Book.execute, { concurrency: 3 })
  yield* Effect.sleep("3 days")
  yield* Tell.execute(`${trip.id}: you leave soon`)
  return bookings
})

const BookTripLive = BookTrip.toLayer(bookAll)

const Survey = Orchestration.make("Survey", { payload: Schema.String, success: Schema.Int })

const SurveyLive = Survey.toLayer(Effect.fn(function*(city) {
  yield* Effect.sleep("1 day")
  return city.length
}))

const Hotel = Orchestration.make("Hotel", { payload: Schema.String, success: Schema.String })

const HotelLive = Hotel.toLayer((city) =>
  Effect.andThen(Effect.sleep(city === "Oslo" ? "1 day" : "1 hour"), Effect.orDie(Book.execute(city))).pipe(
    Effect.onInterrupt(() => Tell.execute(`nothing to undo in ${city}`))
  )
)

const Review = Orchestration.make("Review", {
  payload: { tripId: Schema.String },
  instanceId: ({ tripId }) => `review-${tripId}`
})

const review = Effect.gen(function*() {
  const client = yield* Client.Client
  yield* client.start(Review, { payload: { tripId: "7" }, ifExists: "ignore" }) // however often this runs: one instance
  return yield* client.wait(Review, Review.instanceId({ tripId: "7" }))
})

const reviews = Effect.gen(function*() {
  const client = yield* Client.Client
  return yield* client.startMany(Review, [
    { payload: { tripId: "8" } },
    { payload: { tripId: "9" }, startAt: new Date("2030-01-02T08:00Z") }
  ], { delay: "1 hour" }) // for those without a time of their own
})

// -----------------------------------------------------------------------------
// programs, each run as the orchestration `Program` by a test below
// -----------------------------------------------------------------------------

const waiting = Effect.gen(function*() {
  yield* Effect.sleep("30 days")
  yield* Tell.execute("a month is over").pipe(
    Effect.schedule(Schedule.cron("0 9 * * MON", "Europe/Berlin")),
    Effect.timeoutOption("30 days")
  )
})

const fanOut = Effect.gen(function*() {
  const [paris, rome] = yield* Effect.all([Quote.execute("Paris"), Quote.execute("Rome")], {
    concurrency: "unbounded"
  })
  const quotes = yield* Effect.forEach(["Oslo", "Bern", "Prague"], Quote.execute, { concurrency: 2 })
  const [booked, soldOut] = yield* Effect.partition(["Oslo", "Atlantis"], Book.execute, { concurrency: "unbounded" })
  return { paris, rome, quotes, soldOut, booked }
})

const racing = Effect.gen(function*() {
  const first = yield* Effect.raceFirst(Quote.execute("Paris"), Quote.execute("slow Rome"))
  const inTime = yield* Confirmed.wait.pipe(
    Effect.as("confirmed"),
    Effect.timeoutOrElse({ duration: "7 days", orElse: () => Effect.succeed("not confirmed") })
  )
  return { first, inTime }
})

const retrying = (city: string) =>
  Book.execute(city).pipe(
    Effect.retry({ schedule: Schedule.exponential("1 minute"), times: 5, while: (error) => error.city !== "Atlantis" }),
    Effect.catchTag("SoldOut", () => Book.execute("Oslo"))
  )

const booking = (city: string) =>
  Effect.acquireRelease(
    Book.execute(city),
    (reference, exit) => exit._tag === "Failure" ? Unbook.execute(reference) : Effect.void
  )

const saga = Effect.scoped(Effect.gen(function*() {
  const references = yield* Effect.all([booking("Oslo"), booking("Bern")], { concurrency: "unbounded" })
  yield* booking("Atlantis")
  return references
}))

const seat = (city: string) =>
  Confirmed.wait.pipe(
    Effect.andThen(Book.execute(city)),
    Effect.onError(() => Tell.execute("we give your seat away")),
    Effect.timeoutOption("1 day")
  )

const fibers = Effect.gen(function*() {
  const reminders = yield* Effect.forkChild(
    Effect.schedule(Tell.execute("do not forget"), Schedule.spaced("1 day"))
  )
  const oneAtATime = yield* Semaphore.make(1)
  yield* Effect.all([oneAtATime.withPermit(Quote.execute("Rome")), oneAtATime.withPermit(Quote.execute("Oslo"))], {
    concurrency: "unbounded"
  })
  yield* Effect.sleep("60 hours")
  yield* Fiber.interrupt(reminders)
})

const batches = Stream.fromEffectRepeat(Places.wait).pipe(
  Stream.groupedWithin(3, "1 hour"), // three places, or those of an hour
  Stream.take(2),
  Stream.runForEach((places) => Tell.execute(places.join(" and ")))
)

const polite = Effect.gen(function*() {
  const limited = yield* RateLimiter.makeWithRateLimiter
  const perSecond = limited({ key: "quotes", limit: 2, window: "1 second", onExceeded: "delay" })
  return yield* Effect.forEach(["Oslo", "Bern", "Prague"], (city) => perSecond(Quote.execute(city)), {
    concurrency: "unbounded"
  })
}).pipe(Effect.provide(RateLimiter.layer.pipe(Layer.provide(RateLimiter.layerStoreMemory))))

const children = Effect.gen(function*() {
  const { instanceId } = yield* Orchestration.Instance
  const sizes = yield* Effect.forEach(["Rome", "Oslo"], Survey.execute, { concurrency: "unbounded" })
  const inTime = yield* Survey.execute("Bern").pipe(Effect.timeoutOption("1 hour")) // interrupts the child
  // Independent: no instance waits for it, no interruption of this one reaches it.
  yield* Survey.startDetached({ instanceId: `${instanceId}/later`, payload: "Prague" })
  return { sizes, inTime: Option.isSome(inTime) }
})

const compared = Effect.raceFirst(
  // If the child completes before the interruption reaches it, this undoes its work.
  Hotel.with({ onLateSuccess: (room) => Unbook.execute(room) }).execute("Rome"),
  // Ends at once, without its finalizers.
  Hotel.with({ onInterrupt: "terminate" }).execute("Oslo")
)

const world = Effect.gen(function*() {
  const now = yield* DateTime.now // when this turn began
  const dice = yield* Random.nextIntBetween(1, 6)
  const id = yield* Orchestration.uuid
  yield* Effect.log("written once, however often the program is replayed")
  yield* Tell.execute(id)
  return { now: DateTime.formatIso(now), dice, id }
})

const impatient = Effect.promise(() => fetch("https://example.org"))

const careless = Effect.gen(function*() {
  const id = crypto.randomUUID()
  yield* Tell.execute(id)
  yield* Effect.sleep("1 day")
})

// -----------------------------------------------------------------------------
// tests
// -----------------------------------------------------------------------------

const Program = Orchestration.make("Program", { success: Schema.Unknown, error: SoldOut })

const hours = Effect.map(Clock.currentTimeMillis, (now) => (now - Date.UTC(2030, 0, 1)) / 3_600_000)

/** Runs a program in virtual time; records what its activities did, and when. */
const on = <A, E, R>(
  program: Effect.Effect<unknown, SoldOut, Orchestration.Instance>,
  test: (did: Array<string>, logged: Array<unknown>) => Effect.Effect<A, E, R>,
  settings: RuntimeConfig.Options = {}
) => {
  const did: Array<string> = []
  const logged: Array<unknown> = []
  const note = (what: string) => Effect.map(hours, (now) => void did.push(`${now} ${what}`))
  const runtime = Runtime.layer({
    orchestrations: [Program, BookTrip, Review, Survey, Hotel],
    activities: [Book, Unbook, Quote, Tell]
  }).pipe(Layer.provide([
    Program.toLayer(() => Effect.map(program, (value) => JSON.parse(JSON.stringify(value ?? null)))),
    BookTripLive,
    Review.toLayer(() => Effect.void),
    SurveyLive,
    HotelLive,
    Book.toLayer((city) =>
      Effect.andThen(
        note(`book ${city}`),
        city === "nowhere"
          ? Effect.die("no such place")
          : city === "Atlantis" || (city === "Bath" && did.length < 3)
          ? Effect.fail(new SoldOut({ city }))
          : Effect.succeed(`seat in ${city}`)
      )
    ),
    Unbook.toLayer((reference) => note(`unbook ${reference}`)),
    Quote.toLayer((city) =>
      Effect.as(city.startsWith("slow") ? Effect.sleep(Duration.infinity) : note(`quote ${city}`), city.length)
    ),
    Tell.toLayer((text) => note(`tell ${text}`)),
    Logger.layer([Logger.make(({ message }) => void logged.push(message))]),
    RuntimeConfig.layer({ shutdownTimeout: 1, verifyReplay: true, ...settings })
  ]))
  return test(did, logged).pipe(Effect.provide(TestRuntime.layer(runtime)))
}

const start = Effect.flatMap(Client.Client, (client) => client.start(Program, { instanceId: "p" }))
const wait = Effect.flatMap(Client.Client, (client) => client.wait(Program, "p"))

const IsRunning = Activity.make("IsRunning", { payload: Schema.String, success: Schema.Boolean })

export const IsRunningLive = IsRunning.toLayer(Effect.fn(function*(instanceId) {
  const client = yield* Client.Client
  const { _tag } = yield* Effect.orDie(client.status(instanceId))
  return _tag === "Running"
}))

describe("docs/orchestrations.md", () => {
  it("its examples are those tested here", () => {
    const here = Docs.withoutIndentation(
      Docs.read("test/docs/orchestrations.test.ts")
    )
    const examples = Docs.blocks(Docs.read("docs/orchestrations.md"), "ts")
    assert.lengthOf(examples, 18)
    for (const { code } of examples) assert.include(here, Docs.withoutIndentation(code))
  })

  it.effect("the shape", () =>
    on(Effect.void, (did) =>
      Effect.gen(function*() {
        const client = yield* Client.Client
        const trip = (id: string, ...cities: ReadonlyArray<string>) => ({ instanceId: id, payload: { id, cities } })
        assert.deepStrictEqual(yield* client.execute(BookTrip, trip("t", "Oslo", "Bern")), [
          "seat in Oslo",
          "seat in Bern"
        ])
        assert.deepStrictEqual(did, ["0 book Oslo", "0 book Bern", "72 tell t: you leave soon"])
        assert.deepStrictEqual(
          yield* Effect.flip(client.execute(BookTrip, trip("u", "Atlantis"))),
          new SoldOut({ city: "Atlantis" })
        )
      })))

  it.effect("ids", () =>
    on(Effect.void, () =>
      Effect.gen(function*() {
        yield* review
        yield* review
        const client = yield* Client.Client
        assert.strictEqual((yield* client.status("review-7"))._tag, "Completed")
        assert.deepStrictEqual((yield* reviews).map(({ outcome }) => outcome), ["Started", "Started"])
        const nowMs = yield* Clock.currentTimeMillis
        for (const [id, atMs] of [["review-8", nowMs + 3_600_000], ["review-9", Date.UTC(2030, 0, 2, 8)]] as const) {
          const status = yield* client.status(id)
          assert.deepStrictEqual(status._tag === "Running" && status.startsAtMs, Option.some(atMs))
        }
      })))

  it.effect("waiting", () =>
    on(Effect.orDie(waiting), (did) =>
      Effect.gen(function*() {
        yield* start
        yield* wait
        // 2030-01-31 is a Thursday; Mondays at nine in Berlin, which is at eight in UTC.
        assert.deepStrictEqual(
          did,
          [3, 10, 17, 24].map((day) => `${24 * (31 + day) + 8} tell a month is over`)
        )
        assert.strictEqual(yield* hours, 60 * 24)
      })))

  it.effect("fan-out", () =>
    on(fanOut, (did) =>
      Effect.gen(function*() {
        yield* start
        assert.deepStrictEqual(yield* wait, {
          paris: 5,
          rome: 4,
          quotes: [4, 4, 6],
          soldOut: [{ _tag: "SoldOut", city: "Atlantis" }],
          booked: ["seat in Oslo"]
        })
        assert.lengthOf(did, 7)
      })))

  it.effect("races and timeouts", () =>
    on(racing, () =>
      Effect.gen(function*() {
        yield* start
        assert.deepStrictEqual(yield* wait, { first: 5, inTime: "not confirmed" })
        assert.strictEqual(yield* hours, 7 * 24)
        const cancelled = (yield* TestRuntime.history("p")).filter(({ _tag }) => _tag === "ActivityCancelRequested")
        assert.lengthOf(cancelled, 1)
      })))

  it.effect("retries", () =>
    on(Effect.all([retrying("Atlantis"), retrying("Bath")]), (did) =>
      Effect.gen(function*() {
        yield* start
        assert.deepStrictEqual(yield* wait, ["seat in Oslo", "seat in Bath"])
        assert.deepStrictEqual(did.slice(0, 3), ["0 book Atlantis", "0 book Oslo", "0 book Bath"])
      })))

  it.effect("undoing: acquired resources are released in reverse order", () =>
    on(saga, (did) =>
      Effect.gen(function*() {
        yield* start
        assert.deepStrictEqual(yield* Effect.flip(wait), new SoldOut({ city: "Atlantis" }))
        assert.deepStrictEqual(did, [
          "0 book Oslo",
          "0 book Bern",
          "0 book Atlantis",
          "0 unbook seat in Bern",
          "0 unbook seat in Oslo"
        ])
      })))

  it.effect("undoing: an acquisition beside a failing one is completed and then released", () =>
    on(
      Effect.scoped(Effect.all([booking("Atlantis"), booking("Oslo")], { concurrency: "unbounded" })),
      (did) =>
        Effect.gen(function*() {
          yield* start
          assert.deepStrictEqual(yield* Effect.flip(wait), new SoldOut({ city: "Atlantis" }))
          assert.deepStrictEqual(did, ["0 book Atlantis", "0 book Oslo", "0 unbook seat in Oslo"])
        })
    ))

  for (
    const [what, city, isConfirmed, expected] of [
      ["succeeds: nothing", "Oslo", true, ["1 book Oslo"]],
      ["fails", "Atlantis", true, ["1 book Atlantis", "1 tell we give your seat away"]],
      ["dies", "nowhere", true, ["1 book nowhere", "1 tell we give your seat away"]],
      ["is interrupted", "Oslo", false, ["24 tell we give your seat away"]]
    ] as const
  ) {
    it.effect(`undoing: what runs when a step ${what}`, () =>
      on(seat(city), (did) =>
        Effect.gen(function*() {
          const client = yield* Client.Client
          yield* start
          if (isConfirmed) {
            yield* TestRuntime.advance("1 hour")
            yield* client.send(Confirmed, "p")
          }
          yield* TestRuntime.runToEnd("p")
          assert.deepStrictEqual(did, [...expected])
        })))
  }

  it.effect("undoing: an interruption releases what was acquired", () =>
    on(
      Effect.scoped(Effect.andThen(booking("Oslo"), Effect.andThen(booking("Bern"), Confirmed.wait))),
      (did) =>
        Effect.gen(function*() {
          const client = yield* Client.Client
          yield* start
          yield* client.interrupt("p", "enough", { deadline: "10 minutes" })
          assert.strictEqual((yield* TestRuntime.runToEnd("p"))._tag, "Cancelled")
          assert.deepStrictEqual(did, ["0 book Oslo", "0 book Bern", "0 unbook seat in Bern", "0 unbook seat in Oslo"])
        })
    ))

  it.effect("undoing: neither terminating an instance nor continuing as new runs finalizers", () => {
    const cancelled = on(
      Effect.scoped(Effect.andThen(booking("Oslo"), Confirmed.wait)),
      (did) =>
        Effect.gen(function*() {
          const client = yield* Client.Client
          yield* start
          yield* client.terminate("p", "enough")
          assert.strictEqual((yield* TestRuntime.runToEnd("p"))._tag, "Cancelled")
          assert.deepStrictEqual(did, ["0 book Oslo"])
        })
    )
    const continues = Effect.flatMap(
      Orchestration.Instance,
      ({ executionId }) => executionId === 1 ? Program.continueAsNew() : Effect.void
    )
    const continued = on(
      Effect.scoped(Effect.andThen(Effect.acquireRelease(Book.execute("Oslo"), Unbook.execute), continues)),
      Effect.fnUntraced(function*(did) {
        yield* start
        yield* wait
        assert.deepStrictEqual(did, ["0 book Oslo", "0 book Oslo", "0 unbook seat in Oslo"])
      })
    )
    return Effect.andThen(cancelled, continued)
  })

  it.effect("fibers", () =>
    on(fibers, (did) =>
      Effect.gen(function*() {
        yield* start
        yield* wait
        assert.deepStrictEqual(did, [
          "0 quote Rome",
          "0 quote Oslo",
          "24 tell do not forget",
          "48 tell do not forget"
        ])
      })))

  it.effect("streams: messages are grouped over crashes", () =>
    on(batches, (did) =>
      Effect.gen(function*() {
        const client = yield* Client.Client
        yield* start
        for (const place of ["Oslo", "Bern", "Rome", "Paris"]) {
          yield* client.send(Places, "p", place)
          yield* TestRuntime.crash
        }
        yield* wait
        assert.deepStrictEqual(did, ["0 tell Oslo and Bern and Rome", "1 tell Paris"])
      })))

  it.effect("rate limits: calls wait for their turn", () =>
    on(Effect.orDie(polite), (did) =>
      Effect.gen(function*() {
        yield* start
        assert.deepStrictEqual(yield* wait, [4, 4, 6])
        assert.deepStrictEqual(did, ["0 quote Oslo", "0 quote Bern", `${1 / 3600} quote Prague`])
      })))

  it.effect("children", () =>
    on(children, () =>
      Effect.gen(function*() {
        yield* start
        assert.deepStrictEqual(yield* wait, { sizes: [4, 4], inTime: false })
        const [, , cancelled] = (yield* TestRuntime.history("p")).filter(({ _tag }) =>
          _tag === "SubOrchestrationScheduled"
        )
        assert.strictEqual((yield* TestRuntime.runToEnd(`p::sub::${cancelled!.eventId}`))._tag, "Cancelled")
        assert.strictEqual((yield* TestRuntime.runToEnd("p/later"))._tag, "Completed")
      })))

  it.effect("children: the loser of a race ends as its options say", () =>
    on(compared, (did) =>
      Effect.gen(function*() {
        yield* start
        assert.strictEqual(yield* wait, "seat in Rome")
        assert.strictEqual((yield* TestRuntime.runToEnd("p::sub::3"))._tag, "Cancelled")
        assert.notInclude(did, "1 tell nothing to undo in Oslo")
      })))

  it.effect("children: one that is interrupted cleans up before its parent continues", () =>
    on(
      Effect.andThen(Effect.timeoutOption(Hotel.execute("Rome"), "30 minutes"), Tell.execute("on")),
      (did) =>
        Effect.gen(function*() {
          yield* start
          yield* wait
          assert.deepStrictEqual(did, ["0.5 tell nothing to undo in Rome", "0.5 tell on"])
        })
    ))

  it.effect("time, chance, ids, logs: the same in every replay", () =>
    on(Effect.andThen(world, (seen) => Effect.as(Confirmed.wait, seen)), (did, logged) =>
      Effect.gen(function*() {
        const client = yield* Client.Client
        yield* start
        yield* TestRuntime.advance("1 hour")
        yield* TestRuntime.crash
        yield* client.send(Confirmed, "p")
        const seen = yield* wait
        assert.strictEqual((seen as { now: string }).now, "2030-01-01T00:00:00.000Z")
        assert.deepStrictEqual(did, [`0 tell ${(seen as { id: string }).id}`])
        assert.lengthOf(logged.filter((message) => String(message).includes("written once")), 1)
      })))

  it.effect("rules: a promise is refused", () =>
    on(impatient, () =>
      Effect.gen(function*() {
        yield* start
        const error = yield* Effect.flip(wait)
        assert.include(error.message, `awaits something that is not durable (a promise, a callback, a real timer)`)
      })))

  it.effect("rules: what differs between two replays is found at the next turn of a test", () =>
    on(careless, () =>
      Effect.gen(function*() {
        yield* start
        const error = yield* Effect.flip(wait)
        assert.include(
          error.message,
          `orchestration "Program" is not deterministic: its replay decides otherwise than its program did in memory`
        )
      })))

  it.effect("rules: what differs between two replays is found after a restart in production", () =>
    on(
      careless,
      Effect.fnUntraced(function*() {
        yield* start
        yield* TestRuntime.advance("1 hour")
        yield* TestRuntime.crash
        const error = yield* Effect.flip(wait)
        assert.include(
          error.message,
          `event 2: history has activity "Tell", the code asks for the same with another input`
        )
      }),
      { verifyReplay: false }
    ))
})
