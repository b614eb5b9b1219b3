import type { ComponentChildren } from "preact"
import { Check, SelectField, TextField } from "../parts/fields.tsx"
import { type Draft, draftText, emptyDraft, type Problem } from "./draft.ts"
import type { Shape } from "./shape.ts"

interface Props {
  readonly shape: Shape
  readonly name: string
  /** As problems name it. */
  readonly path: string
  readonly problems: ReadonlyArray<Problem>
  readonly draft: Draft
  readonly onChange: (draft: Draft) => void
  /** Whether its name stands above it already. */
  readonly isNamed?: boolean
}

/** The controls of a shape, nested as the payload is. */
export const Fields = (props: Props) => {
  const { draft, name, onChange, path, problems, shape } = props
  const label = name === "" ? shape.title ?? "Value" : name
  const hint = { isLabelHidden: props.isNamed === true, ...(shape.note === undefined ? {} : { hint: shape.note }) }
  const found = problems.find((one) => one.path === path)
  const problem = found === undefined ? undefined : `${label} ${found.text}.`
  switch (shape.kind) {
    case "text":
      return (
        <TextField
          label={label}
          value={draftText(draft)}
          onInput={onChange}
          problem={problem}
          {...hint}
          {...(shape.isLong ? { rows: 4 } : {})}
        />
      )
    case "number":
      return (
        <TextField
          label={label}
          type="number"
          value={draftText(draft)}
          onInput={onChange}
          problem={problem}
          {...hint}
        />
      )
    case "boolean":
      return <Check checked={draft === true} onInput={onChange}>{label}</Check>
    case "choice":
      return (
        <SelectField
          label={label}
          value={draftText(draft)}
          options={shape.values.map((value) => [JSON.stringify(value), String(value)] as const)}
          onInput={onChange}
          {...hint}
        />
      )
    case "null":
      return <p class="muted small">{label}: null</p>
    case "json":
      return (
        <TextField
          label={`${label} (JSON)`}
          rows={4}
          value={draftText(draft)}
          onInput={onChange}
          problem={problem}
          {...hint}
        />
      )
    case "nullable":
      return (
        <Optional
          label={props.isNamed === true ? "with a value" : label}
          word="null"
          isSet={draft !== null}
          onInput={(isSet) => onChange(isSet ? emptyDraft(shape.of) : null)}
        >
          <Fields {...props} shape={shape.of} isNamed />
        </Optional>
      )
    case "array":
      return <Items {...props} label={label} item={shape.item} />
    case "object":
      return <ObjectFields {...props} fields={shape.fields} />
  }
}

const Optional = (props: {
  readonly label: string
  readonly word: string
  readonly isOptional?: boolean
  readonly isSet: boolean
  readonly onInput: (isSet: boolean) => void
  readonly children: ComponentChildren
}) => (
  <div class="field">
    <Check checked={props.isSet} onInput={props.onInput}>
      {props.label}{" "}
      <span class="muted">
        {[...(props.isOptional === true ? ["optional"] : []), ...(props.isSet ? [] : [`(${props.word})`])].join(" ")}
      </span>
    </Check>
    {props.isSet && props.children}
  </div>
)

const ObjectFields = (props: Props & { readonly fields: Extract<Shape, { kind: "object" }>["fields"] }) => {
  const values = props.draft as { readonly [name: string]: Draft }
  const set = (name: string) => (draft: Draft) => props.onChange({ ...values, [name]: draft })
  const pathOf = (name: string) => props.path === "" ? name : `${props.path}.${name}`
  return (
    <fieldset class={props.name === "" ? "top" : undefined}>
      {props.name !== "" && <legend class={props.isNamed === true ? "hidden-visually" : undefined}>{props.name}
      </legend>}
      {props.fields.map((field) =>
        field.isRequired
          ? (
            <Fields
              key={field.name}
              shape={field.shape}
              name={field.name}
              path={pathOf(field.name)}
              problems={props.problems}
              draft={values[field.name]}
              onChange={set(field.name)}
            />
          )
          : (
            <Optional
              key={field.name}
              label={field.name}
              word="left out"
              isOptional
              isSet={values[field.name] !== undefined}
              onInput={(isSet) => set(field.name)(isSet ? emptyDraft(field.shape) : undefined)}
            >
              <Fields
                shape={field.shape}
                name={field.name}
                path={pathOf(field.name)}
                problems={props.problems}
                draft={values[field.name]}
                onChange={set(field.name)}
                isNamed
              />
            </Optional>
          )
      )}
    </fieldset>
  )
}

const Items = (props: Props & { readonly label: string; readonly item: Shape }) => {
  const items = Array.isArray(props.draft) ? props.draft as ReadonlyArray<string> : []
  return (
    <fieldset>
      <legend class={props.isNamed === true ? "hidden-visually" : undefined}>{props.label}</legend>
      {items.map((item, at) => (
        <div class="row" key={at}>
          <Fields
            shape={props.item}
            name={`${props.label} ${at + 1}`}
            path={`${props.path}[${at}]`}
            problems={props.problems}
            draft={item}
            onChange={(draft) => props.onChange(items.with(at, draftText(draft)))}
          />
          <button
            type="button"
            class="button small"
            aria-label={`Remove ${props.label} ${at + 1}`}
            onClick={() => props.onChange(items.toSpliced(at, 1))}
          >
            Remove
          </button>
        </div>
      ))}
      <div>
        <button
          type="button"
          class="button small"
          onClick={() => props.onChange([...items, draftText(emptyDraft(props.item))])}
        >
          Add
        </button>
      </div>
    </fieldset>
  )
}
