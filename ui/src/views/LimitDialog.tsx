import { useState } from "preact/hooks"
import { toast } from "../app/contexts.ts"
import { api } from "../client/client.ts"
import type { Bound, LimitKind, LimitScope } from "../client/models.ts"
import { ActionDialog } from "../parts/dialog.tsx"
import { SelectField, TextField } from "../parts/fields.tsx"
import { boundOf, boundWords, draftOf, problemsOf } from "./limits.ts"

const kinds: ReadonlyArray<LimitKind> = ["activity", "orchestration", "task"]

/** What someone is about to do with a limit. */
export type Doing =
  | {
    readonly action: "set"
    readonly kind: LimitKind
    /** Null: to be typed. */
    readonly name: string | null
    readonly scope: LimitScope
    readonly bound: Bound | null
  }
  | {
    readonly action: "remove"
    readonly kind: LimitKind
    readonly name: string
    /** Null: all of the definition. */
    readonly scope: LimitScope | null
  }

interface Props {
  readonly onDone: () => void
  readonly onClose: () => void
}

export const LimitDialog = ({ doing, ...props }: Props & { readonly doing: Doing }) =>
  doing.action === "set" ? <SetDialog {...props} {...doing} /> : <RemoveDialog {...props} {...doing} />

const SetDialog = (props: Props & Extract<Doing, { action: "set" }>) => {
  const [of, setOf] = useState(props.kind)
  const [name, setName] = useState(props.name ?? "")
  const [kind, setKind] = useState(props.scope.kind)
  const [key, setKey] = useState(props.scope.key ?? "")
  const [draft, setDraft] = useState(() => draftOf(props.bound))
  const problems = problemsOf(draft)
  const isFixed = props.bound !== null || (props.scope.kind === "key" && props.scope.key !== null)
  const isFit = Object.keys(problems).length === 0 && name.trim() !== "" &&
    (kind !== "key" || isFixed || key.trim() !== "")
  const field = (name: keyof typeof draft) => ({
    value: draft[name],
    onInput: (value: string) => setDraft({ ...draft, [name]: value }),
    problem: problems[name]
  })
  return (
    <ActionDialog
      title={props.name === null ? "Set a limit" : `Set the limit of ${props.kind} ${props.name}`}
      confirm="Set"
      canRun={isFit}
      effect={() =>
        api.operate.setLimit({
          payload: {
            kind: of,
            name: props.name ?? name.trim(),
            scope: { kind, key: kind === "key" ? key : null },
            bound: boundOf(draft)
          }
        })}
      onDone={({ message }) => {
        toast(message)
        props.onDone()
      }}
      onClose={props.onClose}
    >
      <p>
        It holds for all processes at once. What waits begins as soon as there is room; what runs is not interrupted,
        and counts.
      </p>
      {props.name === null && (
        <>
          <SelectField
            label="Kind"
            value={of}
            options={kinds.map((kind) => [kind, kind])}
            onInput={(value) => setOf(value as LimitKind)}
          />
          <TextField label="Name" value={name} onInput={setName} />
        </>
      )}
      {isFixed
        ? (
          <p class="muted">
            {kind === "total" ? "Of all together." : kind === "eachKey" ? "Of each key." : `Of key ${key}.`}
          </p>
        )
        : (
          <SelectField
            label="Of"
            hint="Whose work the bounds below count together."
            value={kind}
            options={[["total", "all together"], ["eachKey", "each key"], ["key", "one key"]]}
            onInput={(value) => setKind(value as LimitScope["kind"])}
          />
        )}
      {!isFixed && kind === "key" && (
        <TextField
          label="Key"
          value={key}
          onInput={setKey}
          hint="What limitKey of the definition makes of a payload."
        />
      )}
      <TextField
        label="At once"
        {...field("concurrency")}
        placeholder="no bound"
        hint="How many may run at the same time."
      />
      <div class="fields">
        <TextField label="Begin" {...field("count")} placeholder="no bound" hint="How many may begin in that time." />
        <TextField label="Per" {...field("per")} hint="That time, such as 30 s, 1 min or 1 h." />
        <TextField
          label="In a burst"
          {...field("burst")}
          placeholder="1"
          hint="How many of them may begin at once, after a quiet time."
        />
      </div>
      {isFit && <p class="muted small" role="status">{boundWords(boundOf(draft))}</p>}
    </ActionDialog>
  )
}

const RemoveDialog = (props: Props & Extract<Doing, { action: "remove" }>) => {
  const { kind, name, scope } = props
  const [typed, setTyped] = useState("")
  const of = scope === null
    ? `all limits of ${kind} ${name}`
    : scope.kind === "total"
    ? `the limit of ${kind} ${name}`
    : scope.kind === "eachKey"
    ? `the limit of each key of ${kind} ${name}`
    : `the limit of key ${scope.key} of ${kind} ${name}`
  return (
    <ActionDialog
      title={`Remove ${of}`}
      confirm="Remove"
      isDanger
      canRun={scope !== null || typed.trim() === name.trim()}
      effect={() => api.operate.removeLimit({ payload: { kind, name, ...(scope === null ? {} : { scope }) } })}
      onDone={({ message }) => {
        toast(message)
        props.onDone()
      }}
      onClose={props.onClose}
    >
      <p>
        {scope === null
          ? "All that waits for them begins as soon as processes have slots."
          : scope.kind === "key"
          ? "It falls under the bound of each key."
          : "What waits for it alone begins as soon as processes have slots."}
      </p>
      {scope === null && (
        <TextField label="Type the name to confirm" value={typed} onInput={setTyped} placeholder={name} />
      )}
    </ActionDialog>
  )
}
