import { assert, describe, it } from "@effect/vitest"
import { ProviderError } from "duroxide-prisma/provider"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Option from "effect/Option"
import * as ErrorDetails from "../../src/model/ErrorDetails.ts"
import type * as Event from "../../src/model/Event.ts"
import { PayloadMismatch } from "../../src/model/shared/payload.ts"
import type * as WorkItem from "../../src/model/WorkItem.ts"
import type { OrchestrationItem } from "../../src/provider/Provider.ts"
import type { WarmProgram } from "../../src/replay/turn.ts"
import * as decide from "../../src/runtime/decide.ts"
import type { Within } from "../../src/runtime/handlers.ts"
import * as registries from "../../src/runtime/registry.ts"

const maxAttempts = 3

const registration = (version: string) => ({ name: "Job", version, code: () => Effect.succeed("null") })
const registry = registries.makeUnsafe([registration("1.0.0"), registration("2.0.0")])

// -- what a claim may hold -------------------------------------------------------------------------

const envelope = { sourceEventId: null, instanceId: "i", executionId: 1, timestampMs: 0, duroxideVersion: "1000.0.0" }

const started = (version = "1.0.0", parentInstance: string | null = null): Event.Of<"OrchestrationStarted"> => ({
  ...envelope,
  eventId: 1,
  _tag: "OrchestrationStarted",
  name: "Job",
  version,
  input: "null",
  parentInstance,
  parentId: parentInstance === null ? null : 7
})
const completed: Event.Event = { ...envelope, eventId: 2, _tag: "OrchestrationCompleted", output: "null" }
const continued: Event.Event = { ...envelope, eventId: 2, _tag: "OrchestrationContinuedAsNew", input: "null" }

const signal: WorkItem.WorkItem = { _tag: "ExternalRaised", instance: "i", name: "Go", data: "null" }
const start = (
  version: string | null = null,
  parentInstance: string | null = null
): WorkItem.Of<"StartOrchestration"> => ({
  _tag: "StartOrchestration",
  instance: "i",
  orchestration: "Job",
  input: "null",
  version,
  parentInstance,
  parentId: parentInstance === null ? null : 7,
  executionId: 1
})
const next: WorkItem.WorkItem = {
  _tag: "ContinueAsNew",
  instance: "i",
  orchestration: "Job",
  input: "null",
  version: null
}

const item = (
  history: ReadonlyArray<Event.Event>,
  messages: ReadonlyArray<WorkItem.WorkItem>,
  fields: Partial<OrchestrationItem> = {}
): OrchestrationItem => ({
  instanceId: "i",
  orchestrationName: "Job",
  orchestrationVersion: "1.0.0",
  executionId: 1,
  nowMs: 0,
  history,
  isKnownHistory: false,
  historyError: Option.none(),
  messages,
  messageIds: messages.map((_, index) => index),
  enqueuedAtMs: messages.map(() => 0),
  keyValues: new Map(),
  ...fields
})

const unreadable = { historyError: Option.some("event 2 is not JSON") }
const known = { isKnownHistory: true }

const warm: WarmProgram = {
  started: started(),
  executionId: 1,
  lastEvent: started(),
  bytes: 0,
  isSound: () => true,
  resume: () => undefined
}

const decided = (item: OrchestrationItem, attemptCount: number, program?: WarmProgram) =>
  decide.instance({ attemptCount, item }, { registry, isPaused: () => false, maxAttempts, warm: program })

/** The tag for most; details for an abandonment and for a failure. */
const brief = (decision: decide.InstanceDecision | decide.UnstoredTurn): string => {
  switch (decision._tag) {
    case "Abandon":
      return abandoned(decision)
    case "Replay":
      return "registration" in decision
        ? `Replay ${decision.registration.version}, execution ${decision.batch.executionId}`
        : "Replay"
    case "FailAsPoison":
    case "Fail": {
      const last = decision.turn.historyDelta.at(-1)
      return `${decision._tag} ${last?._tag === "OrchestrationFailed" ? last.details._tag : "nothing"}`
    }
    default:
      return decision._tag
  }
}

const abandoned = ({ because, beginsFirst, counts, pause }: decide.Abandon<string>) =>
  `Abandon ${because}, ${Duration.isDuration(pause) ? Duration.format(pause) : pause}${counts ? ", counted" : ""}` +
  (beginsFirst === true ? ", start first" : "")

// -- what the store may answer ---------------------------------------------------------------------

const failure = (reason: ProviderError.ProviderError["reason"]) =>
  new ProviderError.ProviderError({ operation: "ack", reason })

const lockLost = failure(new ProviderError.LockLost({ lockToken: "token" }))
const refused = failure(new ProviderError.DataRefused({ sqlState: "22P05", problem: "NUL" }))
const invalid = failure(new ProviderError.InvalidInput({ field: "item", problem: "NUL" }))
const connectionLost = failure(new ProviderError.ConnectionLost({ problem: "ECONNREFUSED" }))

describe("An instance that is delivered", () => {
  const cases: ReadonlyArray<readonly [name: string, decision: decide.InstanceDecision, expected: string]> = [
    ["starts", decided(item([], [start("1.0.0")]), 1), "Replay 1.0.0, execution 1"],
    [
      "starts with the newest version, where none is asked for",
      decided(item([], [start()]), 1),
      "Replay 2.0.0, execution 1"
    ],
    [
      "replays its history with the version it began with",
      decided(item([started()], [signal]), 1),
      "Replay 1.0.0, execution 1"
    ],
    ["begins its next execution", decided(item([started(), continued], [next]), 1), "Replay 2.0.0, execution 2"],
    ["runs at its last delivery", decided(item([started()], [signal]), maxAttempts), "Replay 1.0.0, execution 1"],
    ["is poison after that", decided(item([started()], [signal]), maxAttempts + 1), "FailAsPoison Poison"],
    ["is poison also without its start", decided(item([], [signal]), maxAttempts + 1), "FailAsPoison Poison"],
    ["stays as it ended", decided(item([started(), completed], [signal]), 1), "Drop"],
    ["stays as it ended, however often it is delivered", decided(item([started(), completed], [signal]), 9), "Drop"],
    ["waits for its start", decided(item([], [signal]), 1), "Abandon Early, growing, start first"],
    [
      "waits for its next start",
      decided(item([started(), continued], [signal]), 1),
      "Abandon Early, growing, start first"
    ],
    [
      "waits for a process that serves its version",
      decided(item([started("3.0.0")], [signal]), 1),
      "Abandon Unserved, 1s"
    ],
    [
      "waits for a release that can read its history",
      decided(item([started()], [signal], unreadable), 1),
      "Abandon HistoryUnreadable, growing"
    ],
    [
      "is poison when no release could read its history",
      decided(item([started()], [signal], unreadable), maxAttempts + 1),
      "FailAsPoison Poison"
    ],
    ["resumes while it is warm", decided(item([], [signal], known), 1, warm), "Resume"],
    ["reads its history when it is warm no longer", decided(item([], [signal], known), 1), "ReadHistory"],
    ["reads its history to be poison", decided(item([], [signal], known), maxAttempts + 1, warm), "ReadHistory"]
  ]
  for (const [name, decision, expected] of cases) {
    it(`instance: ${name}`, () => assert.strictEqual(brief(decision), expected))
  }

  it("notifies a parent whose child cannot start, because its id is taken", () => {
    const running = decided(item([started("1.0.0", "p")], [start(null, "p"), start(null, "q")]), 1)
    if (running._tag !== "Replay") return assert.fail(running._tag)
    assert.deepStrictEqual(
      running.batch.rejections.map((rejection) => "parentInstance" in rejection && rejection.parentInstance),
      ["q"]
    )
    const ended = decided(item([started("1.0.0", "p"), completed], [start(null, "q")]), 1)
    if (ended._tag !== "Drop") return assert.fail(ended._tag)
    assert.lengthOf(ended.rejections, 1)
    const poison = decided(item([started("1.0.0", "p")], [start(null, "q")]), maxAttempts + 1)
    if (poison._tag !== "FailAsPoison") return assert.fail(poison._tag)
    assert.deepStrictEqual(
      poison.turn.orchestratorItems.map((message) => "parentInstance" in message && message.parentInstance),
      ["p", "q"]
    )
  })

  it("keeps the version of the execution before when it fails as poison in a new one", () => {
    const versionOf = (messages: ReadonlyArray<WorkItem.WorkItem>, history: ReadonlyArray<Event.Event>) => {
      const decision = decided(item(history, messages), maxAttempts + 1)
      return decision._tag === "FailAsPoison" ? decision.turn.metadata.orchestrationVersion : decision._tag
    }
    assert.strictEqual(versionOf([next], [started(), continued]), "1.0.0")
    assert.strictEqual(versionOf([{ ...next, version: "2.0.0" }], [started(), continued]), "2.0.0")
  })
})

describe("A turn that is not stored", () => {
  const of = (error: ProviderError.ProviderError, origin: decide.TurnOrigin) =>
    brief(decide.unstoredTurn(error, origin, item([started()], [signal])))
  const cases: ReadonlyArray<readonly [name: string, decision: string, expected: string]> = [
    ["fails its instance when the store refuses it", of(refused, "Replay"), "Fail Infrastructure"],
    ["fails its instance when its texts cannot be stored", of(invalid, "Replay"), "Fail Infrastructure"],
    ["is replayed first when a warm program ran it", of(refused, "Resume"), "Replay"],
    ["is given back when the store refuses even the failure", of(refused, "Refusal"), "Abandon TurnNotStored, growing"],
    ["is released when its lock is lost", of(lockLost, "Replay"), "Release"],
    ["is released when its lock is lost, and a warm program ran it", of(lockLost, "Resume"), "Release"],
    ["is given back when the store does not answer", of(connectionLost, "Replay"), "Abandon TurnNotStored, growing"],
    [
      "is given back when the store does not answer a warm program",
      of(connectionLost, "Resume"),
      "Abandon TurnNotStored, growing"
    ]
  ]
  for (const [name, decision, expected] of cases) {
    it(`turn: ${name}`, () => assert.strictEqual(decision, expected))
  }
})

describe("An activity that is delivered", () => {
  const job: decide.Activity = {
    _tag: "ActivityExecute",
    instance: "i",
    executionId: 1,
    id: 2,
    name: "Job",
    input: "null"
  }
  const delivered = (attemptCount: number, name = "Job") => {
    const decision = decide.activity({ attemptCount, item: { ...job, name } }, {
      handlers: new Map([["Job", "handler"]]),
      isPaused: () => false,
      maxAttempts
    })
    return decision._tag === "Abandon"
      ? abandoned(decision)
      : decision._tag === "FailAsPoison"
      ? `FailAsPoison ${outcome(decision.completion)}`
      : `Run ${decision.handler}`
  }
  const outcome = (completion: decide.Completion) =>
    completion._tag === "ActivityFailed" ? completion.details._tag : completion.result
  const application = ErrorDetails.application("ActivityFailed", "no")
  const ended = (
    exit: Exit.Exit<string | Within, ErrorDetails.ErrorDetails | PayloadMismatch>,
    { item = job, mayBlock = true } = {}
  ) => {
    const decision = decide.handlerEnd(item, exit, mayBlock)
    return decision._tag === "Store"
      ? `Store ${outcome(decision.completion)}`
      : decision._tag === "Within"
      ? decision.outcome
      : abandoned(decision)
  }
  const completion = (details?: ErrorDetails.ErrorDetails): decide.Completion => {
    const of = { instance: "i", executionId: 1, id: 2 }
    return details === undefined
      ? { _tag: "ActivityCompleted", ...of, result: "1" }
      : { _tag: "ActivityFailed", ...of, details }
  }
  const unstored = (error: ProviderError.ProviderError, details?: ErrorDetails.ErrorDetails) => {
    const decision = decide.unstoredOutcome(job, completion(details), error)
    return decision._tag === "Abandon"
      ? abandoned(decision)
      : decision._tag === "Fail"
      ? `Fail ${outcome(decision.completion)}`
      : decision._tag
  }
  const unread = Exit.fail(new PayloadMismatch({ of: "payload", problem: "missing" }))
  const ours: decide.Activity = { ...job, startedAtMs: 0 }
  const infrastructure: ErrorDetails.ErrorDetails = {
    _tag: "Infrastructure",
    operation: "ack",
    message: "NUL",
    retryable: false
  }
  const cases: ReadonlyArray<readonly [name: string, decision: string, expected: string]> = [
    ["runs", delivered(1), "Run handler"],
    ["waits for a handler that can read it", ended(unread, { item: ours }), "Abandon Blocked, growing"],
    ["fails unread where the settings say so", ended(unread, { item: ours, mayBlock: false }), "Store Application"],
    ["fails unread for an instance of Duroxide", ended(unread), "Store Application"],
    ["runs at its last delivery", delivered(maxAttempts), "Run handler"],
    ["is poison after that", delivered(maxAttempts + 1), "FailAsPoison Poison"],
    ["waits for a process that serves it", delivered(1, "Other"), "Abandon Unserved, 1s"],
    ["succeeds with its handler", ended(Exit.succeed("1")), "Store 1"],
    ["fails with its handler", ended(Exit.fail(application)), "Store Application"],
    [
      "is delivered again when its handler interrupts itself",
      ended(Exit.interrupt()),
      "Abandon HandlerInterrupted, none, counted"
    ],
    ["fails when the store refuses its result", unstored(refused), "Fail Infrastructure"],
    ["fails when the store refuses its error", unstored(refused, application), "Fail Infrastructure"],
    [
      "is given back when the store refuses even that",
      unstored(refused, infrastructure),
      "Abandon OutcomeRefused, growing, counted"
    ],
    ["is left when its lock is lost", unstored(lockLost), "Leave"],
    ["keeps its outcome when the store does not answer", unstored(connectionLost), "Retry"]
  ]
  for (const [name, decision, expected] of cases) {
    it(`activity: ${name}`, () => assert.strictEqual(decision, expected))
  }
})

describe("A turn without a claim:", () => {
  const first = (version: string | null) => {
    const decision = decide.firstTurn(start(version), 5, registry, () => false)
    return decision && `${decision.registration.version} at ${decision.item.nowMs}`
  }
  const activity = (fields: Partial<decide.Activity> = {}): decide.Activity => ({
    _tag: "ActivityExecute",
    instance: "i",
    executionId: 1,
    id: 2,
    name: "Work",
    input: "null",
    startedAtMs: 0,
    ...fields
  })
  const { startedAtMs: _, ...ofRust } = activity()
  const advances = (attemptCount: number, fields?: Partial<decide.Activity>, program = warm) =>
    decide.canAdvance({ attemptCount, item: activity(fields) }, program)
  const handedOver = (...items: ReadonlyArray<decide.Activity>) =>
    decide.mayBeHandedOver(
      {
        executionId: 1,
        historyDelta: [],
        workerItems: items,
        forRust: new Set(items.filter(({ input }) => input === "rust")),
        orchestratorItems: [],
        cancelledActivities: [],
        metadata: {}
      },
      new Set(["Work"])
    )
  const later: WarmProgram = { ...warm, lastEvent: { ...started(), timestampMs: 9 } }
  const cases: ReadonlyArray<readonly [name: string, decision: unknown, expected: unknown]> = [
    ["a start runs in the version it asks for", first("1.0.0"), "1.0.0 at 5"],
    ["a start runs in the newest version when it asks for none", first(null), "2.0.0 at 5"],
    ["a start of a version that is not served waits for a claim", first("3.0.0"), undefined],
    ["the outcome of a first delivery leads to one", advances(1), true],
    ["the outcome of a second delivery is stored first", advances(2), false],
    ["the outcome of another execution is stored alone", advances(1, { executionId: 2 }), false],
    ["the outcome of an earlier instance of the id is stored alone", advances(1, { startedAtMs: 1 }), false],
    [
      "the outcome of a call by Rust is stored alone",
      decide.canAdvance({ attemptCount: 1, item: ofRust }, warm),
      false
    ],
    ["a program that is not sound runs none", advances(1, {}, { ...warm, isSound: () => false }), false],
    ["it happens at the time of the store", decide.optimisticTime(12, later), 12],
    ["it does not happen before the last event", decide.optimisticTime(7, later), 9],
    ["activities that are served here may be handed over", handedOver(activity(), activity({ name: "Other" })), 1],
    ["activities with a session are not handed over", handedOver(activity({ sessionId: "s" })), 0],
    ["activities that Rust serves are not handed over", handedOver(activity({ input: "rust" })), 0]
  ]
  for (const [name, decision, expected] of cases) it(`turn: ${name}`, () => assert.strictEqual(decision, expected))
})
