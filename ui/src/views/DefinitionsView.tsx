import { Fragment } from "preact"
import { useState } from "preact/hooks"
import { useReadOnly, useSession } from "../app/contexts.ts"
import { link, useRoute } from "../app/route.ts"
import { api } from "../client/client.ts"
import type { Definition, PauseTarget } from "../client/models.ts"
import { useQuery } from "../client/query.ts"
import { Answer, Empty, Panel, Table } from "../parts/panel.tsx"
import { PauseDialog, ResumeDialog } from "../parts/pause.tsx"
import { Num, number } from "../parts/time.tsx"
import { StartDialog } from "./StartDialog.tsx"

type Open = { readonly pause: PauseTarget } | { readonly resume: PauseTarget } | {
  readonly start: { readonly name: string; readonly version: string | null }
}

/** Orchestrations with their versions: how many instances, served by whom. */
export const DefinitionsView = () => {
  const definitions = useQuery(() => api.read.definitions({}), [], { everyMs: 10_000 })
  const { orchestrations } = useSession()
  const wanted = useRoute().query["start"]
  const [open, setOpen] = useState<Open | null>(
    wanted === undefined ? null : { start: { name: wanted, version: null } }
  )
  const readOnly = useReadOnly()
  return (
    <>
      <div class="view-head">
        <h1>Definitions</h1>
        <div class="end">
          <button
            type="button"
            class="button main"
            disabled={readOnly !== undefined}
            title={readOnly}
            onClick={() =>
              setOpen({ start: { name: orchestrations[0]?.name ?? definitions.data?.[0]?.name ?? "", version: null } })}
          >
            Start an instance
          </button>
        </div>
      </div>
      <Panel title="Orchestrations">
        <Answer query={definitions}>
          {(items) =>
            items.length === 0
              ? (
                <Empty>
                  There are no definitions yet: those that instances run, or that living processes serve, would be here.
                </Empty>
              )
              : (
                <Table
                  label="Orchestrations by version"
                  head={[
                    "Version",
                    "Running",
                    "Blocked",
                    "Completed",
                    "Failed",
                    "Cancelled",
                    "Served by",
                    "Builds",
                    "-Actions"
                  ]}
                  nums={[1, 2, 3, 4, 5]}
                >
                  {items.map((definition) => (
                    <DefinitionRows
                      key={definition.name}
                      definition={definition}
                      readOnly={readOnly}
                      onOpen={setOpen}
                    />
                  ))}
                </Table>
              )}
        </Answer>
      </Panel>
      {open !== null && "pause" in open && (
        <PauseDialog
          target={open.pause}
          onDone={definitions.reload}
          onClose={() => setOpen(null)}
        />
      )}
      {open !== null && "resume" in open && (
        <ResumeDialog
          target={open.resume}
          onDone={definitions.reload}
          onClose={() => setOpen(null)}
        />
      )}
      {open !== null && "start" in open && (
        <StartDialog
          name={open.start.name}
          version={open.start.version}
          names={[
            ...new Set([...orchestrations.map(({ name }) => name), ...definitions.data?.map(({ name }) => name) ?? []])
          ]}
          onClose={() => setOpen(null)}
        />
      )}
    </>
  )
}

const DefinitionRows = (props: {
  readonly definition: Definition
  readonly readOnly: string | undefined
  readonly onOpen: (open: Open) => void
}) => {
  const { definition, readOnly } = props
  const pauseOf = (version: string | null) => definition.pauses.find(({ target }) => target.version === version)
  const target = (version: string | null): PauseTarget => ({ kind: "orchestration", name: definition.name, version })
  const button = (text: string, version: string | null, open: Open) => (
    <button
      type="button"
      class="button small"
      disabled={readOnly !== undefined}
      title={readOnly}
      onClick={() => props.onOpen(open)}
    >
      {text}
      <span class="hidden-visually">{definition.name} {version}</span>
    </button>
  )
  const buttons = (version: string | null) => (
    <span class="row tight end-of-row">
      {button("Start…", version, { start: { name: definition.name, version } })}
      {pauseOf(version) === undefined
        ? button(version === null ? "Pause all…" : "Pause…", version, { pause: target(version) })
        : button(version === null ? "Resume all…" : "Resume…", version, { resume: target(version) })}
    </span>
  )
  const paused = (version: string | null) => {
    const pause = pauseOf(version)
    return pause === undefined ? null : <span class="badge amber" title={pause.reason ?? undefined}>Paused</span>
  }
  return (
    <Fragment>
      <tr class="group">
        <th scope="rowgroup" colSpan={8}>
          <span class="row">
            <a href={link(["instances"], { name: definition.name })}>{definition.name}</a>
            {paused(null)}
          </span>
        </th>
        <td class="num">{buttons(null)}</td>
      </tr>
      {definition.versions.map((item) => {
        const to = (status: string) =>
          link(["instances"], { name: definition.name, version: item.version ?? undefined, status })
        const count = (n: number, status: string, tone?: string) =>
          n === 0 ? <Num n={0} /> : (
            <a href={to(status)} class={tone === undefined ? undefined : `badge ${tone}`}>
              {item.isEstimate && status !== "Blocked" ? "about " : ""}
              {number(n)}
            </a>
          )
        return (
          <tr key={item.version}>
            <td class="nowrap">
              {item.version ?? <span class="muted">not begun</span>} {item.version !== null && paused(item.version)}
            </td>
            <td class="num">{count(item.running, "Running")}</td>
            <td class="num">{count(item.blocked, "Blocked", "red")}</td>
            <td class="num">{count(item.completed, "Completed")}</td>
            <td class="num">{count(item.failed, "Failed", "red")}</td>
            <td class="num">{count(item.cancelled, "Cancelled")}</td>
            <td>
              {item.version === null
                ? <span class="zero">–</span>
                : item.servedBy === 0
                ? <span class={item.running > 0 ? "badge red" : "muted"}>no process</span>
                : item.servedBy === 1
                ? "1 process"
                : `${item.servedBy} processes`}
            </td>
            <td>
              <span class="row tight">{item.builds.map((build) => <span class="chip" key={build}>{build}</span>)}</span>
            </td>
            <td class="num">{item.version !== null && buttons(item.version)}</td>
          </tr>
        )
      })}
    </Fragment>
  )
}
