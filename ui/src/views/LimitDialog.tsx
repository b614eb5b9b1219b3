import { useState } from "preact/hooks"
import { toast } from "../app/contexts.ts"
import { api } from "../client/client.ts"
import type { Bound, LimitScope } from "../client/models.ts"
import { ActionDialog } from "../parts/dialog.tsx"
import { SelectField, TextField } from "../parts/fields.tsx"
import { boundOf, boundWords, draftOf, problemsOf } from "./limits.ts"

/** What someone is about to do with a limit. */
export type Doing =
  | {
    readonly action: "set"
    /** Null: to be typed. */
    readonly activity: string | null
    readonly scope: LimitScope
    readonly bound: Bound | null
  }
  | {
    readonly action: "remove"
    readonly activity: string
    /** Null: all of the activity. */
    readonly scope: LimitScope | null
  }

interface Props {
  readonly onDone: () => void
  readonly onClose: () => void
}

export const LimitDialog = ({ doing, ...props }: Props & { readonly doing: Doing }) =>
  doing.action === "set" ? <SetDialog {...props} {...doing} /> : <RemoveDialog {...props} {...doing} />

const SetDialog = (props: Props & Extract<Doing, { action: "set" }>) => {
  const [activity, setActivity] = useState(props.activity ?? "")
  const [kind, setKind] = useState(props.scope.kind)
  const [key, setKey] = useState(props.scope.key ?? "")
  const [draft, setDraft] = useState(() => draftOf(props.bound))
  const problems = problemsOf(draft)
  const isFixed = props.bound !== null || (props.scope.kind === "key" && props.scope.key !== null)
  const isFit = Object.keys(problems).length === 0 && activity.trim() !== "" &&
    (kind !== "key" || isFixed || key.trim() !== "")
  const field = (name: keyof typeof draft) => ({
    value: draft[name],
    onInput: (value: string) => setDraft({ ...draft, [name]: value }),
    problem: problems[name]
  })
  return (
    <ActionDialog
      title={props.activity === null ? "Set a limit" : `Set the limit of ${props.activity}`}
      confirm="Set"
      canRun={isFit}
      effect={() =>
        api.operate.setLimit({
          payload: {
            activity: props.activity ?? activity.trim(),
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
      {props.activity === null && <TextField label="Activity" value={activity} onInput={setActivity} />}
      {isFixed
        ? (
          <p class="muted">
            {kind === "total" ? "Of all together." : kind === "eachKey" ? "Of each key." : `Of key ${key}.`}
          </p>
        )
        : (
          <SelectField
            label="Of"
            value={kind}
            options={[["total", "all together"], ["eachKey", "each key"], ["key", "one key"]]}
            onInput={(value) => setKind(value as LimitScope["kind"])}
          />
        )}
      {!isFixed && kind === "key" && (
        <TextField label="Key" value={key} onInput={setKey} hint="What limitKey of the activity makes of a payload." />
      )}
      <TextField label="At once" {...field("concurrency")} placeholder="no bound" />
      <div class="fields">
        <TextField label="Begin" {...field("count")} placeholder="no bound" />
        <TextField label="Per" {...field("per")} />
        <TextField label="In a burst" {...field("burst")} placeholder="1" />
      </div>
      {isFit && <p class="muted small" role="status">{boundWords(boundOf(draft))}</p>}
    </ActionDialog>
  )
}

const RemoveDialog = (props: Props & Extract<Doing, { action: "remove" }>) => {
  const { activity, scope } = props
  const [typed, setTyped] = useState("")
  const of = scope === null
    ? `all limits of ${activity}`
    : scope.kind === "total"
    ? `the limit of ${activity}`
    : scope.kind === "eachKey"
    ? `the limit of each key of ${activity}`
    : `the limit of key ${scope.key} of ${activity}`
  return (
    <ActionDialog
      title={`Remove ${of}`}
      confirm="Remove"
      isDanger
      canRun={scope !== null || typed.trim() === activity.trim()}
      effect={() => api.operate.removeLimit({ payload: { activity, ...(scope === null ? {} : { scope }) } })}
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
          ? "Its activities fall under the bound of each key."
          : "What waits for it alone begins as soon as processes have slots."}
      </p>
      {scope === null && (
        <TextField label="Type the name to confirm" value={typed} onInput={setTyped} placeholder={activity} />
      )}
    </ActionDialog>
  )
}
