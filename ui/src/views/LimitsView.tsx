import { useState } from "preact/hooks"
import { useReadOnly } from "../app/contexts.ts"
import { api } from "../client/client.ts"
import type { Limit, LimitScope } from "../client/models.ts"
import { useQuery } from "../client/query.ts"
import { Answer, Empty, Panel, Table } from "../parts/panel.tsx"
import { Ago, For, Num, number } from "../parts/time.tsx"
import { type Doing, LimitDialog } from "./LimitDialog.tsx"
import { boundWords } from "./limits.ts"

/** How much of a definition may be under way, how often one may begin, and what waits for that. */
export const LimitsView = () => {
  const limits = useQuery(() => api.read.limits({}), [], { everyMs: 3000 })
  const [doing, setDoing] = useState<Doing | null>(null)
  const readOnly = useReadOnly()
  return (
    <>
      <div class="view-head">
        <h1>Limits</h1>
        <div class="end">
          <button
            type="button"
            class="button main"
            disabled={readOnly !== undefined}
            title={readOnly}
            onClick={() => setDoing({ action: "set", kind: "activity", name: null, scope: total, bound: null })}
          >
            Set a limit
          </button>
        </div>
      </div>
      <Answer query={limits}>
        {(all) =>
          all.length === 0
            ? (
              <Panel title="Limits">
                <Empty>
                  Nothing has a limit. What programs and operators set would be here: how many are in use, and what
                  waits.
                </Empty>
              </Panel>
            )
            : <>{all.map((limit) => <Of key={`${limit.kind} ${limit.name}`} limit={limit} onDo={setDoing} />)}</>}
      </Answer>
      {doing !== null && <LimitDialog doing={doing} onDone={limits.reload} onClose={() => setDoing(null)} />}
    </>
  )
}

const total: LimitScope = { kind: "total", key: null }

const Of = ({ limit, onDo }: { readonly limit: Limit; readonly onDo: (doing: Doing) => void }) => {
  const readOnly = useReadOnly()
  const { kind, name } = limit
  const whole = `${kind} ${name}`
  const button = (text: string, of: string, doing: Doing) => (
    <button
      type="button"
      class="button small"
      disabled={readOnly !== undefined}
      title={readOnly}
      onClick={() => onDo(doing)}
    >
      {text}
      <span class="hidden-visually">{of}</span>
    </button>
  )
  const buttons = (scope: LimitScope, of: string, bound: Limit["total"]) => (
    <span class="row tight end-of-row">
      {button(bound === null ? "Set…" : "Change…", of, { action: "set", kind, name, scope, bound })}
      {bound !== null && button("Remove…", of, { action: "remove", kind, name, scope })}
    </span>
  )
  const left = limit.keyCount - limit.keys.filter(({ inUse, waiting }) => inUse + waiting > 0).length
  return (
    <Panel
      title={whole}
      end={
        <>
          <span class="muted small">
            changed <Ago atMs={limit.sinceMs} />
          </span>
          {button("Bound of a key…", whole, {
            action: "set",
            kind,
            name,
            scope: { kind: "key", key: null },
            bound: null
          })}
          {button("Remove all…", whole, { action: "remove", kind, name, scope: null })}
        </>
      }
    >
      <Table
        isCards
        label={`Limits of ${whole}`}
        head={["Of", "Bound", "In use", "Waiting", "Oldest waits for", "-Actions"]}
        nums={[2, 3]}
      >
        <Row
          name={<strong>all together</strong>}
          bound={boundWords(limit.total)}
          use={limit}
          end={buttons(total, `all of ${whole}`, limit.total)}
        />
        <Row
          name={<strong>each key</strong>}
          bound={boundWords(limit.eachKey)}
          use={null}
          end={buttons({ kind: "eachKey", key: null }, `each key of ${whole}`, limit.eachKey)}
        />
        {limit.keys.map((one) => (
          <Row
            key={one.key}
            name={one.key === "" ? <span class="muted">without a key</span> : <span class="chip">{one.key}</span>}
            bound={one.own === null ? "as each key" : boundWords(one.own)}
            use={one}
            end={buttons({ kind: "key", key: one.key }, `key ${one.key} of ${whole}`, one.own)}
          />
        ))}
      </Table>
      {left > 0 && <p class="note">{number(left)} more {left === 1 ? "key is" : "keys are"} in use.</p>}
    </Panel>
  )
}

const Row = (props: {
  readonly name: preact.ComponentChildren
  readonly bound: string
  readonly use: Pick<Limit, "inUse" | "waiting" | "oldestMs"> | null
  readonly end: preact.ComponentChildren
}) => (
  <tr>
    <td class="break">{props.name}</td>
    <td>{props.bound}</td>
    <td class="num" data-label="in use">
      {props.use === null ? <span class="zero">–</span> : <Num n={props.use.inUse} />}
    </td>
    <td class="num" data-label="waiting">
      {props.use === null ? <span class="zero">–</span> : <Num n={props.use.waiting} tone="amber" />}
    </td>
    <td data-label="oldest waits for">
      {props.use === null || props.use.oldestMs === null
        ? <span class="zero">–</span>
        : <For sinceMs={props.use.oldestMs} />}
    </td>
    <td class="num">{props.end}</td>
  </tr>
)
