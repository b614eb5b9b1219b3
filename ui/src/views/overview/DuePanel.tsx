import type { Overview } from "../../client/models.ts"
import { Empty, Panel, Table } from "../../parts/panel.tsx"
import { duration, Num, number } from "../../parts/time.tsx"

/** Turns and activities that could be claimed now, by definition. */
export const DuePanel = ({ due }: { readonly due: Overview["due"] }) => (
  <Panel title="Due work">
    {due.length === 0
      ? <Empty>Nothing waits. Turns and activities that are due would be here, by definition and tag.</Empty>
      : (
        <Table
          label="Due work by definition"
          head={["Definition", "Kind", "Waiting", "Running", "Oldest", "Served by"]}
          nums={[2, 3, 5]}
        >
          {due.map((item, at) => (
            <tr key={at}>
              <td class="name">
                {item.name} {item.version !== null && <span class="muted">{item.version}</span>}{" "}
                {item.tag !== null && <span class="chip">{item.tag}</span>}
              </td>
              <td class="muted">{item.kind}</td>
              <td class="num">{item.isMore ? `${number(item.waiting)} or more` : <Num n={item.waiting} />}</td>
              <td class="num">
                <Num n={item.running} />
              </td>
              <td class="nowrap">
                {item.oldestAgeMs === null ? <span class="zero">–</span> : duration(item.oldestAgeMs)}
              </td>
              <td class="num">
                <span class="badges">
                  {item.servedBy === null
                    ? <span class="muted">Duroxide</span>
                    : item.servedBy === 0
                    ? <span class="badge red">no process</span>
                    : number(item.servedBy)}
                  {item.isPaused && <span class="badge amber">Paused</span>}
                </span>
              </td>
            </tr>
          ))}
        </Table>
      )}
  </Panel>
)
