/**
 * A dashboard for people who run orchestrations: what happens, why something does not, and what to do about it.
 *
 * It is served by any process that has a store, beside its own pages. Everything it does can be done with `Admin`,
 * `Client` and the command line as well.
 *
 * @since 0.3.0
 */
import * as Effect from "effect/Effect"
import * as HttpApiBuilder from "effect/http-api/HttpApiBuilder"
import * as OpenApi from "effect/http-api/OpenApi"
import { HttpRouter } from "effect/http/HttpRouter"
import * as HttpServer from "effect/http/HttpServer"
import type { HttpServerRequest } from "effect/http/HttpServerRequest"
import * as Latch from "effect/Latch"
import * as Layer from "effect/Layer"
import type * as Redacted from "effect/Redacted"
import * as Client from "../Client.ts"
import type { PayloadSchema } from "../model/shared/payload.ts"
import type * as PrismaProvider from "../prisma/PrismaProvider.ts"
import { InvalidInput, ProviderError } from "../provider/ProviderError.ts"
import * as Schedules from "../schedules/Schedules.ts"
import * as Tasks from "../tasks/Tasks.ts"
import { Api } from "./Api.ts"
import type { Actor, Forbidden, Unauthorized } from "./Api.ts"
import * as access from "./internal/access.ts"
import * as Actions from "./internal/actions.ts"
import * as Files from "./internal/files.ts"
import * as Fitting from "./internal/fitting.ts"
import * as Reads from "./internal/reads.ts"

/**
 * Says who sends a request, or refuses it. Called before each answer with data; the files of the page, which are the
 * same for everyone, are served to all.
 *
 * @category models
 * @since 0.3.0
 */
export interface Access {
  (request: HttpServerRequest): Effect.Effect<Actor, Unauthorized | Forbidden>
}

/**
 * Options of the dashboard. Only `access` has no default.
 *
 * @category options
 * @since 0.3.0
 */
export interface Options {
  /** `bearer`, `trusted`, or your own. */
  readonly access: Access
  /** Where it is mounted, such as `/duroxide`, its default. `/` is the root. */
  readonly path?: `/${string}` | undefined
  /** Definitions that the dashboard makes forms for. For others it takes JSON text. */
  readonly orchestrations?:
    | ReadonlyArray<
      {
        readonly name: string
        readonly version: string
        readonly payload: PayloadSchema
        readonly instanceId?: ((payload: never) => string) | undefined
      }
    >
    | undefined
  /** Signals that the dashboard makes forms for. For others it takes JSON text. */
  readonly signals?: ReadonlyArray<{ readonly name: string; readonly payload: PayloadSchema }> | undefined
  /** Requests that the dashboard makes forms for. For others it takes JSON text. */
  readonly requests?: ReadonlyArray<{ readonly name: string; readonly payload: PayloadSchema }> | undefined
  /**
   * Whether payloads leave this process: inputs, results, data of signals, values. `hide` hides them from everyone;
   * names, ids, attributes, texts of status and of errors stay. Defaults to `show`.
   */
  readonly payloads?: "show" | "hide" | undefined
  /** A page of metrics, such as a dashboard of Grafana, to link to. Defaults to none. */
  readonly metricsUrl?: string | undefined
  /** Most live streams that may be open, at least 1: an open page has one or two. Defaults to 200. */
  readonly maxStreams?: number | undefined
}

/**
 * Lets in who sends one of these tokens; the page asks for it. Throws a `RangeError` without a token, and for one that
 * has fewer than 16 characters or others than ASCII.
 *
 * @category access
 * @since 0.3.0
 */
export const bearer = (
  tokens: ReadonlyArray<Actor & { readonly token: Redacted.Redacted<string> }>
): Access => access.bearer(tokens)

/**
 * Lets everyone in: for a router whose own middleware has already asked who it is. `actor` defaults to one that may do
 * everything.
 *
 * @category access
 * @since 0.3.0
 */
export const trusted = (actor: Actor = { name: "operator", role: "operate" }): Access => () => Effect.succeed(actor)

/**
 * Adds the dashboard to the router, with its interface below `/api`, and the OpenAPI document of that at
 * `/api/openapi.json`.
 *
 * **Details**
 *
 * Requests of other sites are refused. It loads nothing from elsewhere, runs no inline script, and cannot be
 * framed. Fails with `InvalidInput` if an option cannot be used, or if the files of the page are not beside this code.
 *
 * @category layers
 * @since 0.3.0
 */
export const layer = (
  options: Options
): Layer.Layer<never, ProviderError, HttpRouter | PrismaProvider.Services> =>
  Layer.unwrap(Effect.gen(function*() {
    const { maxStreams = 200, path: given = "/duroxide" } = options
    const path = given.replace(/\/+$/, "")
    if (!/^(\/[\w.~-]+)*$/.test(path) || /\/\.\.?(\/|$)/.test(path)) {
      return yield* invalid("path", "it must be letters, digits and -._~ between slashes")
    }
    if (!Number.isInteger(maxStreams) || maxStreams < 1) {
      return yield* invalid("maxStreams", `it must be a whole number of at least 1, not ${maxStreams}`)
    }
    const page = yield* Files.read
    const knowledge = {
      payloads: options.payloads ?? "show",
      orchestrations: options.orchestrations ?? [],
      signals: options.signals ?? [],
      requests: options.requests ?? [],
      metricsUrl: options.metricsUrl ?? null,
      maxStreams,
      packageVersion: page.packageVersion
    }
    const acted = yield* Latch.make()
    const mounted = Layer.effect(
      HttpRouter,
      Effect.map(HttpRouter, (router) => path === "" ? router : router.prefixed(path))
    )
    return Layer.mergeAll(
      HttpApiBuilder.layer(
        Api.annotate(OpenApi.Version, page.packageVersion).annotate(OpenApi.Servers, [{
          url: path === "" ? "/" : path
        }]),
        { openapiPath: "/api/openapi.json" }
      ).pipe(
        Layer.provide([Reads.layer(knowledge, acted), Actions.layer(knowledge, acted)]),
        Layer.provide([access.layer(options.access), Fitting.layer]),
        Layer.provide(mounted)
      ),
      Layer.effectDiscard(Files.serve(page, path))
    ).pipe(
      Layer.provide([Client.layer, Tasks.layer, Schedules.layerClient, HttpServer.layerServices])
    )
  }))

// internal

const invalid = (field: string, problem: string) =>
  Effect.fail(new ProviderError({ operation: "open", reason: new InvalidInput({ field, problem }) }))
