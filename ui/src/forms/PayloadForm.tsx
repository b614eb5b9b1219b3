import { useState } from "preact/hooks"
import type { JsonSchema } from "../client/models.ts"
import { Check, TextField } from "../parts/fields.tsx"
import { type Draft, emptyDraft, type Json, type Problem, toDraft, toJson } from "./draft.ts"
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

/** The JSON; collects in `problems` what cannot be sent. */
const jsonOf = (state: PayloadState, problems: Array<Problem>): Json =>
  state.isText ? toJson({ kind: "json" }, state.text, "", problems) : toJson(state.shape, state.draft, "", problems)

/** Sends the payload; null, and the problems stand at their fields, if it cannot be. */
export function sendPayload<A>(
  state: PayloadState,
  onChange: (state: PayloadState) => void,
  send: (json: Json) => A
): A | null {
  const problems: Array<Problem> = []
  const json = jsonOf(state, problems)
  if (problems.length === 0) return send(json)
  onChange({ ...state, problems })
  return null
}

/** From JSON back to the form, or why it cannot be shown there. */
const toForm = (state: PayloadState): PayloadState => {
  const problems: Array<Problem> = []
  const json = jsonOf(state, problems)
  if (problems.length > 0) return { ...state, problems }
  const draft = toDraft(state.shape, json, "", problems)
  return problems.length > 0 ? { ...state, problems } : { ...state, draft, isText: false, problems: [] }
}

const sentence = ({ path, text }: Problem) => `${path === "" ? "The payload" : path} ${text}.`

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
            problem={state.problems.length === 0 ? undefined : state.problems.map(sentence).join(" ")}
            onInput={(text) => change({ text })}
            hint="As it is stored: what the Schema encodes, so a date is a text. null if it has none."
          />
        )
        : (
          <>
            {hasOptional(state.shape) && <p class="muted small">What is not optional is required.</p>}
            <Fields
              shape={state.shape}
              name=""
              path=""
              problems={state.problems}
              draft={state.draft}
              onChange={(draft) => change({ draft })}
            />
          </>
        )}
      {state.shape.kind !== "json" && (
        <Check
          checked={state.isText}
          onInput={(isText) => isText ? change({ isText, text: draftText(state) }) : onChange(toForm(state))}
        >
          Write it as JSON
        </Check>
      )}
    </fieldset>
  )
}

const hasOptional = (shape: Shape): boolean =>
  shape.kind === "object" && shape.fields.some((field) => !field.isRequired)

const draftText = (state: PayloadState) => JSON.stringify(toJson(state.shape, state.draft, "", []), null, 2)

export const usePayload = (schema: JsonSchema | null | undefined) => useState(() => initialPayload(schema))
