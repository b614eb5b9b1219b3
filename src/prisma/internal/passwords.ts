/**
 * Passwords that run out: kept while they are valid, and replaced in time by one request for all connections.
 */
import * as Clock from "effect/Clock"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Redacted from "effect/Redacted"
import { ours } from "../../model/shared/logging.ts"
import * as ProviderError from "../../provider/ProviderError.ts"

export interface Issued {
  readonly password: Redacted.Redacted<string>
  /** Milliseconds since the Unix epoch; no login after that. */
  readonly expiresAtMs: number
}

interface Request {
  /** The password that the server refused last. */
  readonly refused?: Redacted.Redacted<string> | undefined
}

export interface Options<R extends Request> {
  /** For messages: "a token of Microsoft Entra". */
  readonly kind: string
  /** Asks for a new password. Interrupted after a minute. */
  readonly issue: (request: R) => Effect.Effect<Issued, ProviderError.Reason>
  /** Connections with the same key share their password. */
  readonly keyOf: (request: R) => string
  /** A password is replaced this long before it runs out, or after half of its time if that is later. */
  readonly refreshBeforeMs: number
}

/** Until the scope is closed. */
export const make = Effect.fnUntraced(
  function*<R extends Request>({ issue, keyOf, kind, refreshBeforeMs }: Options<R>) {
    const scope = yield* Effect.scope
    const entries = new Map<string, Entry>()
    const log = (line: Effect.Effect<void>, annotations: Record<string, unknown>) =>
      line.pipe(
        ours({ credentials: kind, ...annotations })
      )

    /** Replaces the password of an entry. Failing, it keeps the old one. */
    const refresh = (entry: Entry, request: R) =>
      issue(request).pipe(
        Effect.tap(({ password }) => check(kind, password)),
        Effect.timeoutOrElse({ duration: issueTimeout, orElse: () => Effect.fail(unanswered(kind, issueTimeout)) }),
        Effect.tap((issued) =>
          Effect.gen(function*() {
            const nowMs = yield* Clock.currentTimeMillis
            entry.issued = issued
            entry.refreshAtMs = Math.max(issued.expiresAtMs - refreshBeforeMs, (nowMs + issued.expiresAtMs) / 2)
            if (!entry.isFailing) return
            entry.isFailing = false
            yield* log(Effect.logInfo("Credentials: passwords are issued again"), {})
          })
        ),
        Effect.tapError((reason) =>
          Effect.gen(function*() {
            const isNew = !entry.isFailing
            entry.isFailing = true
            entry.notBeforeMs = (yield* Clock.currentTimeMillis) + pauseMs
            if (isNew) {
              yield* log(Effect.logWarning("Credentials: no new password; it is tried again"), {
                error_type: reason._tag,
                error: reason.message
              })
            }
          })
        )
      )

    /** Runs in the scope: a connection that is given up must not interrupt it for the others. */
    const start = Effect.fnUntraced(function*(entry: Entry, request: R) {
      const fiber = yield* Effect.forkIn(refresh(entry, request), scope)
      entry.refresh = fiber
      fiber.addObserver(() => void (entry.refresh = undefined))
      return fiber
    })

    return Effect.fnUntraced(
      function*(request: R): Effect.fn.Return<Redacted.Redacted<string>, ProviderError.Reason> {
        const nowMs = yield* Clock.currentTimeMillis
        const key = keyOf(request)
        const entry = entries.get(key) ?? emptyEntry()
        entries.set(key, entry)
        const { issued } = entry
        const valid = issued !== undefined && nowMs < issued.expiresAtMs ? issued.password : undefined
        const isDoubted = valid !== undefined && isSame(valid, request.refused) &&
          (entry.refresh !== undefined || nowMs >= entry.doubtNotBeforeMs)
        if (isDoubted) entry.doubtNotBeforeMs = nowMs + doubtPauseMs
        if (valid === undefined || isDoubted) {
          return yield* Fiber.join(entry.refresh ?? (yield* start(entry, request))).pipe(
            Effect.map(({ password }) => password),
            Effect.timeoutOrElse({ duration: patience, orElse: () => Effect.fail(unanswered(kind, patience)) })
          )
        }
        if (nowMs >= entry.refreshAtMs && nowMs >= entry.notBeforeMs && entry.refresh === undefined) {
          yield* start(entry, request)
        }
        return valid
      }
    )
  }
)

/** Fails unless it is a password: functions of applications do not always return what their types say. */
export const check = (kind: string, password: unknown): Effect.Effect<void, ProviderError.ConfigurationInvalid> =>
  isPassword(password) ? Effect.void : Effect.fail(
    new ProviderError.ConfigurationInvalid({ problem: `${kind} is not a Redacted string that is not empty` })
  )

// internal

const isPassword = (password: unknown): boolean => {
  const text = Redacted.isRedacted(password) ? Redacted.value(password) : undefined
  return typeof text === "string" && text !== ""
}

interface Entry {
  issued: Issued | undefined
  refreshAtMs: number
  refresh: Fiber.Fiber<Issued, ProviderError.Reason> | undefined
  isFailing: boolean
  /** After a failure, no refresh before this time, while the password is valid. */
  notBeforeMs: number
  /** The server may refuse the login for another reason than the password: then it is not replaced again and again. */
  doubtNotBeforeMs: number
}

const emptyEntry = (): Entry => ({
  issued: undefined,
  refreshAtMs: 0,
  refresh: undefined,
  isFailing: false,
  notBeforeMs: 0,
  doubtNotBeforeMs: 0
})

const issueTimeout = Duration.minutes(1)

/** How long a connection waits for its password. The pool gives a connection up after ten seconds, without a reason. */
const patience = Duration.seconds(8)

const pauseMs = 5000

const doubtPauseMs = 5000

const unanswered = (kind: string, duration: Duration.Duration) =>
  new ProviderError.Unavailable({
    sqlState: null,
    problem: `${kind} was asked for, and no answer came within ${Duration.toSeconds(duration)} seconds`
  })

const isSame = (one: Redacted.Redacted<string>, other: Redacted.Redacted<string> | undefined) =>
  other !== undefined && Redacted.value(one) === Redacted.value(other)
