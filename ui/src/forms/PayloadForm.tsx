import { useState } from "preact/hooks"
import type { JsonSchema } from "../client/models.ts"
import { Check, TextField } from "../parts/fields.tsx"
import { type Draft, emptyDraft, type Json, type Problem, toJson } from "./draft.ts"
import { Fields } from "./Fields.tsx"
import { type Shape, shapeOf } from "./shape.ts"

export interface PayloadState {
  readonly shape: Shape
  readonly draft: Draft
  readonly isText: boolean
  readonly text: string
  readonly problems: ReadonlyArray<Problem>
}

export const initialPayload = (schema: JsonSchema | null | undefined): PayloadState => {
  const shape: Shape = schema === null || schema === undefined ? { kind: "json" } : shapeOf(schema)
  return { shape, draft: emptyDraft(shape), isText: shape.kind === "json", text: "null", problems: [] }
}

/** The JSON, or the state with what is missing in it. */
export const readPayload = (state: PayloadState): { readonly json: Json } | { readonly state: PayloadState } => {
  const problems: Array<Problem> = []
  const json = state.isText
    ? toJson({ kind: "json" }, state.text, "", problems)
    : toJson(state.shape, state.draft, "", problems)
  return problems.length === 0 ? { json } : { state: { ...state, problems } }
}

/** A form made from the JSON Schema of a payload, or a text area for JSON. */
export const PayloadForm = (props: {
  readonly state: PayloadState
  readonly onChange: (state: PayloadState) => void
}) => {
  const { onChange, state } = props
  const change = (part: Partial<PayloadState>) => onChange({ ...state, ...part, problems: [] })
  if (state.shape.kind === "null" && !state.isText) return <p class="muted">It has no payload.</p>
  return (
    <fieldset>
      <legend>Payload</legend>
      {state.isText
        ? (
          <TextField
            label="JSON"
            rows={6}
            value={state.text}
            isInvalid={state.problems.length > 0}
            onInput={(text) => change({ text })}
            hint="As it is stored: what the Schema encodes, so a date is a text. null if it has none."
          />
        )
        : <Fields shape={state.shape} name="" draft={state.draft} onChange={(draft) => change({ draft })} />}
      {state.shape.kind !== "json" && (
        <Check
          checked={state.isText}
          onInput={(isText) => change({ isText, text: isText ? draftText(state) : state.text })}
        >
          Write it as JSON
        </Check>
      )}
      {state.problems.length > 0 && (
        <p class="problem" role="alert">
          {state.problems.map(({ path, text }) => `${path === "" ? "The payload" : path} ${text}.`).join(" ")}
        </p>
      )}
    </fieldset>
  )
}

const draftText = (state: PayloadState) => JSON.stringify(toJson(state.shape, state.draft, "", []), null, 2)

export const usePayload = (schema: JsonSchema | null | undefined) => useState(() => initialPayload(schema))
