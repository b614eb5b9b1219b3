import { useEffect, useState } from "preact/hooks"
import { toInstance } from "../../app/route.ts"
import { api } from "../../client/client.ts"
import type { Instance } from "../../client/models.ts"
import { useAction } from "../../client/query.ts"
import { InstanceBadges } from "../../parts/badges.tsx"
import { Empty, Panel, Problem } from "../../parts/panel.tsx"
import { Ago } from "../../parts/time.tsx"
import { Detail } from "../instances/InstancesView.tsx"

const pageSize = 100

/** The tree of children; each level is read when it is unfolded. */
export const Children = ({ id }: { readonly id: string }) => (
  <Panel title="Children">
    <Level parent={id} isTop />
  </Panel>
)

const Level = ({ isTop = false, parent }: { readonly parent: string; readonly isTop?: boolean }) => {
  const [children, setChildren] = useState<ReadonlyArray<Instance>>([])
  const [next, setNext] = useState<string | null>(null)
  const [isRead, setRead] = useState(false)
  const reading = useAction()
  const read = (cursor: string | null) =>
    reading.run(
      readPage(parent, cursor),
      (page) => {
        setChildren((before) => cursor === null ? page.instances : [...before, ...page.instances])
        setNext(page.next)
        setRead(true)
      }
    )
  useEffect(() => read(null), [parent])
  return (
    <>
      {reading.problem !== null && <Problem text={reading.problem} retry={() => read(next)} />}
      {isRead && children.length === 0 && next === null && (
        isTop
          ? <Empty>It has no children. Instances that it starts and waits for would be here.</Empty>
          : <p class="tree-note">no children</p>
      )}
      {!isRead && reading.problem === null && <p class="tree-note">Loading…</p>}
      <ul class="tree">{children.map((child) => <Child key={child.instanceId} child={child} />)}</ul>
      {next !== null && (
        <p class="tree-note">
          <button type="button" class="button small" disabled={reading.isRunning} onClick={() => read(next)}>
            Show more
          </button>{" "}
          <span class="muted">{children.length} shown</span>
        </p>
      )}
    </>
  )
}

const readPage = (parent: string, cursor: string | null) =>
  api.read.instances({ query: { parent, orderBy: "oldest", limit: pageSize, ...(cursor === null ? {} : { cursor }) } })

const Child = ({ child }: { readonly child: Instance }) => {
  const [isOpen, setOpen] = useState(false)
  return (
    <li>
      <div class="tree-line">
        <button
          type="button"
          class="button small plain"
          aria-expanded={isOpen}
          aria-label={`Children of ${child.instanceId}`}
          onClick={() => setOpen(!isOpen)}
        >
          {isOpen ? "▾" : "▸"}
        </button>
        <a class="break" href={toInstance(child.instanceId)}>{child.instanceId}</a>
        <span class="muted">{child.orchestration} {child.version}</span>
        <InstanceBadges instance={child} />
        <span class="muted small">
          <Ago atMs={child.createdAtMs} />
        </span>
        <span class="tree-detail muted">
          <Detail instance={child} />
        </span>
      </div>
      {isOpen && <Level parent={child.instanceId} />}
    </li>
  )
}
