import { useEffect, useState } from "preact/hooks"
import { go, link, type Query, replace, toInstance } from "../../app/route.ts"
import { Check, SelectField, TextField } from "../../parts/fields.tsx"
import { filterKeys, isFiltered, orderOf, statuses, type textNumberOf } from "./filter.ts"

const more = [
  "attributes",
  "createdFromMs",
  "createdBeforeMs",
  "updatedFromMs",
  "updatedBeforeMs",
  "customStatus",
  "error",
  "version",
  "parent"
]

/** What is filled in goes into the address at once, so that the list follows and the link can be shared. */
export const FilterForm = (props: {
  readonly query: Query
  /** Times that cannot be read. */
  readonly wrong: ReadonlyArray<string>
  readonly wrongAttribute: string | undefined
  /** An attribute that found nothing, perhaps because it is a number. */
  readonly textNumber: ReturnType<typeof textNumberOf>
}) => {
  const { query, textNumber, wrong, wrongAttribute } = props
  const [id, setId] = useState("")
  const [isOpen, setOpen] = useState(more.some((key) => (query[key] ?? "") !== ""))
  const isNarrow = useIsNarrow()
  const [wantsUnfolded, setUnfolded] = useState(false)
  const isUnfolded = wantsUnfolded || wrong.length > 0 || wrongAttribute !== undefined
  const set = (key: string) => (value: string) => replace(link(["instances"], { ...query, [key]: value }))
  const text = (key: (typeof filterKeys)[number], label: string, placeholder: string, hint?: string) => (
    <TextField
      label={label}
      value={query[key] ?? ""}
      placeholder={placeholder}
      problem={wrong.includes(key)
        ? "Write an age such as 30m, 2h or 7d, or a time such as 2026-11-27T08:00Z."
        : undefined}
      onInput={set(key)}
      {...(hint === undefined ? {} : { hint })}
    />
  )
  return (
    <section class="panel" aria-label="Filter">
      {isNarrow && (
        <button
          type="button"
          class="button plain filter-fold"
          aria-expanded={isUnfolded}
          onClick={() => setUnfolded(!isUnfolded)}
        >
          {isUnfolded ? "Hide the filter" : isFiltered(query) ? "Show the filter (it is set)" : "Show the filter"}
        </button>
      )}
      <div class="body stack" hidden={isNarrow && !isUnfolded}>
        <div class="fields">
          <form
            onSubmit={(event) => {
              event.preventDefault()
              if (id.trim() !== "") go(toInstance(id.trim()))
            }}
          >
            <TextField label="Open by id" type="search" value={id} onInput={setId} placeholder="exact id, then Enter" />
          </form>
          <SelectField
            label="Status"
            value={query["status"] ?? ""}
            options={[["", "any"], ...statuses.map((one) => [one, one] as const)]}
            onInput={set("status")}
          />
          {text("name", "Orchestration", "any")}
          {text("idPrefix", "Id begins with", "any")}
          <SelectField
            label="Order"
            value={orderOf(query)}
            options={[["newest", "newest first"], ["oldest", "oldest first"], ["id", "by id"]]}
            onInput={set("order")}
          />
        </div>
        {isOpen && (
          <div class="fields">
            {text("version", "Version", "any")}
            {text("parent", "Children of", "id of the parent")}
            {text("createdFromMs", "Created since", "2h, 7d, 2026-11-27T08:00Z")}
            {text("createdBeforeMs", "Created before", "30m")}
            {text("updatedFromMs", "Last turn since", "2h")}
            {text("updatedBeforeMs", "Last turn before", "1d")}
            {text("customStatus", "Custom status contains", "text")}
            {text("error", "Error contains", "text")}
            <TextField
              label="Attributes"
              rows={2}
              value={query["attributes"] ?? ""}
              placeholder={"customer=c1\namount:>=10"}
              problem={wrongAttribute}
              hint={textNumber === undefined
                ? "One a line; all must hold. A text is customer=c1, a number amount:=12."
                : `${textNumber.value} is compared as a text; a number is ${textNumber.name}:=${textNumber.value}.`}
              onInput={set("attributes")}
            />
          </div>
        )}
        <div class="row">
          <Check checked={query["roots"] === "true"} onInput={(on) => set("roots")(on ? "true" : "")}>
            Only roots (no parent)
          </Check>
          <Check checked={query["retrying"] === "true"} onInput={(on) => set("retrying")(on ? "true" : "")}>
            Retrying an activity
          </Check>
          <button type="button" class="button small plain" aria-expanded={isOpen} onClick={() => setOpen(!isOpen)}>
            {isOpen ? "Fewer filters" : "More filters"}
          </button>
          {isFiltered(query) && (
            <a class="button small plain" href={link(["instances"], { order: query["order"] })}>Clear</a>
          )}
        </div>
      </div>
    </section>
  )
}

const narrow = matchMedia("(max-width: 700px)")

const useIsNarrow = (): boolean => {
  const [isNarrow, setNarrow] = useState(narrow.matches)
  useEffect(() => {
    const follow = () => setNarrow(narrow.matches)
    narrow.addEventListener("change", follow)
    return () => narrow.removeEventListener("change", follow)
  }, [])
  return isNarrow
}
