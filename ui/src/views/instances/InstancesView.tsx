import * as Effect from "effect/Effect"
import { useState } from "preact/hooks"
import { useOverview, useReadOnly } from "../../app/contexts.ts"
import { link, type Query, toInstance } from "../../app/route.ts"
import { api } from "../../client/client.ts"
import { tellTime, useTimed } from "../../client/clock.ts"
import type { Instance } from "../../client/models.ts"
import { useQuery } from "../../client/query.ts"
import { Attributes } from "../../parts/attributes.tsx"
import { InstanceBadges } from "../../parts/badges.tsx"
import { Check } from "../../parts/fields.tsx"
import { Menu, MenuItem } from "../../parts/menu.tsx"
import { Pager } from "../../parts/pager.tsx"
import { usePages } from "../../parts/pages.ts"
import { Answer, Empty, Panel, Table } from "../../parts/panel.tsx"
import { Short } from "../../parts/payload.tsx"
import { Ago, number } from "../../parts/time.tsx"
import { type BulkAction, bulkActions } from "./bulk.ts"
import { BulkDialog } from "./BulkDialog.tsx"
import { isFiltered, isFilteredFurther, orderOf, searchOf, statuses, textNumberOf } from "./filter.ts"
import { FilterForm } from "./FilterForm.tsx"

const refreshMs = 5000

export const InstancesView = ({ query }: { readonly query: Query }) => {
  const { search, wrong } = searchOf(query)
  const key = JSON.stringify(query)
  const pages = usePages([key])
  const [isPaused, setPaused] = useState(false)
  const [action, setAction] = useState<BulkAction | null>(null)
  const readOnly = useReadOnly()
  const page = useQuery(
    () =>
      api.read.instances({
        query: {
          ...searchOf(query).search,
          orderBy: orderOf(query),
          limit: 50,
          ...(pages.cursor === undefined ? {} : { cursor: pages.cursor })
        }
      }).pipe(
        // A bulk action takes what was created before now: what is listed must be.
        Effect.tap(({ instances }) =>
          Effect.sync(() => {
            for (const { createdAtMs } of instances) tellTime(createdAtMs + 1)
          })
        )
      ),
    [key, pages.cursor],
    { everyMs: isPaused || action !== null ? null : refreshMs, delayMs: 250 }
  )
  const wrongAttribute = /^attributes: (.*)$/s.exec(page.problem ?? "")?.[1]
  const isEmpty = page.problem === null && page.data?.instances.length === 0 && page.data.next === null
  const counted = useCounts(query)(query["status"] ?? "")
  const isAll = pages.cursor === undefined && page.data?.next === null
  const matching = isAll ? number(page.data.instances.length) : counted === null ? null : shown(counted)
  const isWrong = wrong.length > 0 || wrongAttribute !== undefined
  return (
    <>
      <div class="view-head">
        <h1>Instances</h1>
        <div class="end">
          <Check isSwitch checked={!isPaused} onInput={(on) => setPaused(!on)}>Refresh every 5 s</Check>
          <Menu label={`Act on all ${matching ?? "that match"}…`}>
            {readOnly !== undefined && <p class="menu-note">{readOnly}</p>}
            {bulkActions.map((one) => (
              <MenuItem
                key={one.action}
                text={`${one.verb}…`}
                note={one.note}
                isDanger={one.isDanger}
                isDisabled={readOnly !== undefined || isWrong}
                onClick={() => setAction(one)}
              />
            ))}
          </Menu>
        </div>
      </div>
      <StatusCounts query={query} />
      <FilterForm
        query={query}
        wrong={wrong}
        wrongAttribute={wrongAttribute}
        textNumber={isEmpty ? textNumberOf(query["attributes"] ?? "") : undefined}
      />
      <Panel title={search.status === undefined ? "Instances" : `${search.status} instances`}>
        {isWrong && <Empty>The filter cannot be read. What is wrong stands at its field.</Empty>}
        {!isWrong && (
          <Answer query={page}>
            {({ instances, next }) => (
              <div>
                {instances.length === 0
                  ? (
                    <Empty>
                      {next !== null
                        ? "No match among those looked at so far. Go to the next page to look further."
                        : isFiltered(query)
                        ? "No instance matches the filter."
                        : "No instance has been started yet. Start one in Definitions, or with the client."}
                    </Empty>
                  )
                  : (
                    <Table
                      isCards
                      label="Instances"
                      head={["Instance", "Orchestration", "Status", "Created", "Last turn", "Detail"]}
                    >
                      {instances.map((instance) => <InstanceRow key={instance.instanceId} instance={instance} />)}
                    </Table>
                  )}
                <Pager pages={pages} next={next} isLoading={page.isLoading} />
              </div>
            )}
          </Answer>
        )}
      </Panel>
      {action !== null && (
        <BulkDialog
          action={action}
          search={search}
          onClose={() => {
            setAction(null)
            page.reload()
          }}
        />
      )}
    </>
  )
}

interface Counted {
  readonly n: number
  readonly about: boolean
}

const shown = ({ about, n }: Counted) => `${about ? "about " : ""}${number(n)}`

/** The counts of the overview by status, of all with an empty one; null where they are not known. */
const useCounts = (query: Query) => {
  const { data } = useOverview()
  const name = query["name"]
  return (status: string): Counted | null => {
    if (data === null || isFilteredFurther(query) || status === "Paused") return null
    if (status === "Blocked") return name === undefined ? { n: data.blocked, about: false } : null
    const counts = data.counts.filter((one) =>
      (status === "" || one.status === status) && (name === undefined || one.orchestration === name)
    )
    return { n: counts.reduce((sum, one) => sum + one.instances, 0), about: counts.some((one) => one.isEstimate) }
  }
}

/** Tabs by status with their counts. */
const StatusCounts = ({ query }: { readonly query: Query }) => {
  const of = useCounts(query)
  const item = (status: string, text: string) => {
    const count = status === "" ? null : of(status)
    return (
      <a
        key={status}
        class="button small plain"
        aria-current={(query["status"] ?? "") === status ? "true" : undefined}
        href={link(["instances"], { ...query, status })}
      >
        {text} {count !== null && <span class="muted">{shown(count)}</span>}
      </a>
    )
  }
  return (
    <nav class="row tight tabs" aria-label="Status">
      {item("", "All")}
      {statuses.map((status) => item(status, status))}
    </nav>
  )
}

const InstanceRow = ({ instance }: { readonly instance: Instance }) => (
  <tr>
    <td class="name">
      <a href={toInstance(instance.instanceId)}>{instance.instanceId}</a>
      <Attributes of={instance.attributes} />
    </td>
    <td>
      <a class="plain" href={link(["instances"], { name: instance.orchestration })}>{instance.orchestration}</a>{" "}
      <span class="muted">{instance.version}</span>
    </td>
    <td>
      <InstanceBadges instance={instance} />
    </td>
    <td data-label="Created">
      <Ago atMs={instance.createdAtMs} />
    </td>
    <td data-label="Last turn">
      <Ago atMs={instance.updatedAtMs} />
    </td>
    <td class="detail">
      <Detail instance={instance} />
    </td>
  </tr>
)

/** What it tries again; why it failed, was cancelled, is paused or blocked; of one that runs its custom status. */
export const Detail = ({ instance }: { readonly instance: Instance }) => {
  if (instance.retry !== null) return <Retry retry={instance.retry} />
  const problem = instance.block?.problem ?? instance.pause?.reason
  if (problem !== undefined && problem !== null) return <span class="clip">{problem}</span>
  if (instance.error !== null) return <Short text={instance.error} />
  const runs = instance.status === "Running" || instance.status === "ContinuedAsNew"
  return runs && instance.customStatus !== null ? <span class="clip">{instance.customStatus}</span> : null
}

/** Such as `Charge again in 12 s: the bank is down`. */
const Retry = ({ retry: { activity, atMs, error, isRunning } }: { readonly retry: NonNullable<Instance["retry"]> }) => {
  const isDue = useTimed((nowMs) => atMs <= nowMs)
  return (
    <span class="clip">
      {activity ?? "an activity"} {isRunning ? "runs again" : isDue ? "again, due now" : (
        <>
          again <Ago atMs={atMs} />
        </>
      )}
      {error !== null && `: ${error}`}
    </span>
  )
}
