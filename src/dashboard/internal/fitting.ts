/**
 * What does not fit in a request, as an answer.
 */
import * as Effect from "effect/Effect"
import * as HttpApiMiddleware from "effect/http-api/HttpApiMiddleware"
import type * as Layer from "effect/Layer"
import { Fitting, InvalidRequest } from "../Api.ts"

export const layer: Layer.Layer<Fitting> = HttpApiMiddleware.layerSchemaErrorTransform(
  Fitting,
  (error) =>
    Effect.fail(
      error.kind === "Body" || error.kind === "ResponseHeaders"
        // An answer that does not fit is a defect of the dashboard.
        ? error
        : new InvalidRequest({ message: `${error.kind.toLowerCase()}: ${shown(error.cause.message)}` })
    )
)

// internal

/** On one line. The texts of the sender may come back, as the names of fields that are misspelt. */
const shown = (message: string) => message.replace(/\s*\n\s*/g, " ").slice(0, 300)
