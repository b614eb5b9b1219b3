import type { ComponentChildren } from "preact"
import { useId } from "preact/hooks"

export const TextField = (props: {
  readonly label: string
  readonly value: string
  readonly onInput: (value: string) => void
  readonly hint?: string
  readonly placeholder?: string
  readonly isLabelHidden?: boolean
  readonly rows?: number
  /** What is wrong with it. */
  readonly problem?: string | undefined
  readonly type?: "text" | "number" | "search"
}) => {
  const id = useId()
  const common = {
    id,
    value: props.value,
    placeholder: props.placeholder ?? "",
    "aria-describedby": [
      ...(props.problem === undefined ? [] : [`${id}-problem`]),
      ...(props.hint === undefined ? [] : [`${id}-hint`])
    ].join(" ") || undefined,
    "aria-invalid": props.problem === undefined ? undefined : ("true" as const),
    autocomplete: "off" as const,
    spellcheck: false
  }
  return (
    <div class="field">
      <label for={id} class={props.isLabelHidden === true ? "hidden-visually" : undefined}>{props.label}</label>
      {props.rows === undefined
        ? (
          <input
            {...common}
            {...typeOf(props.type ?? "text")}
            onInput={(event) => props.onInput(event.currentTarget.value)}
          />
        )
        : <textarea {...common} rows={props.rows} onInput={(event) => props.onInput(event.currentTarget.value)} />}
      {props.problem !== undefined && <span class="field-problem" id={`${id}-problem`}>{props.problem}</span>}
      {props.hint !== undefined && <span class="hint" id={`${id}-hint`}>{props.hint}</span>}
    </div>
  )
}

const typeOf = (type: "text" | "number" | "search") =>
  type === "number" ? { type, step: "any" } as const : type === "search" ? { type } as const : { type } as const

export const SelectField = (props: {
  readonly label: string
  readonly value: string
  readonly options: ReadonlyArray<readonly [value: string, text: string]>
  readonly onInput: (value: string) => void
  readonly hint?: string
  readonly isLabelHidden?: boolean
}) => {
  const id = useId()
  return (
    <div class="field">
      <label for={id} class={props.isLabelHidden === true ? "hidden-visually" : undefined}>{props.label}</label>
      <select id={id} value={props.value} onChange={(event) => props.onInput(event.currentTarget.value)}>
        {props.options.map(([value, text]) => <option key={value} value={value}>{text}</option>)}
      </select>
      {props.hint !== undefined && <span class="hint">{props.hint}</span>}
    </div>
  )
}

export const Check = (props: {
  readonly checked: boolean
  readonly isSwitch?: boolean
  readonly onInput: (checked: boolean) => void
  readonly children: ComponentChildren
}) => (
  <label class="check">
    <input
      type="checkbox"
      role={props.isSwitch === true ? "switch" : undefined}
      checked={props.checked}
      onChange={(event) => props.onInput(event.currentTarget.checked)}
    />
    <span>{props.children}</span>
  </label>
)

/** Why something is done; it is stored with the action. */
export const ReasonField = (props: { readonly value: string; readonly onInput: (value: string) => void }) => (
  <TextField label="Reason" hint="Optional. Others read it beside what you did." {...props} />
)

export const reasonOf = (
  text: string
): { readonly reason?: string } => (text.trim() === "" ? {} : { reason: text.trim() })
