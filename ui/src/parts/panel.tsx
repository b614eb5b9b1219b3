/** Panels, and what stands in one while there is nothing to show. */
import type { ComponentChildren } from "preact"
import { useEffect, useId, useRef, useState } from "preact/hooks"

export const Panel = (props: {
  readonly title: string
  readonly end?: ComponentChildren
  readonly children: ComponentChildren
}) => {
  const id = useId()
  return (
    <section class="panel" aria-labelledby={id}>
      <header>
        <h2 id={id}>{props.title}</h2>
        {props.end !== undefined && <div class="end">{props.end}</div>}
      </header>
      {props.children}
    </section>
  )
}

export const Empty = ({ children }: { readonly children: ComponentChildren }) => <p class="empty">{children}</p>

export const Loading = () => <p class="loading">Loading…</p>

export const Problem = ({ text, retry }: { readonly text: string; readonly retry?: () => void }) => (
  <div class="problem" role="alert">
    <span>{text}</span>
    {retry !== undefined && <button type="button" class="button small end" onClick={retry}>Retry</button>}
  </div>
)

/** A table that scrolls by itself where it is wider than the window, and says so. */
export const Table = (props: {
  readonly label: string
  readonly head: ReadonlyArray<string>
  /** Which columns are numbers. */
  readonly nums?: ReadonlyArray<number>
  /** Each row is a card in a narrow window; its cells then need `data-label`. */
  readonly isCards?: boolean
  readonly children: ComponentChildren
}) => {
  const ref = useRef<HTMLDivElement>(null)
  const [isCut, setCut] = useState(false)
  useEffect(() => {
    const box = ref.current
    if (box === null) return
    const sized = new ResizeObserver(() => setCut(box.scrollWidth > box.clientWidth + 1))
    sized.observe(box)
    if (box.firstElementChild !== null) sized.observe(box.firstElementChild)
    return () => sized.disconnect()
  }, [])
  return (
    <>
      {isCut && <p class="note scroll-hint">The table has more columns: scroll it sideways.</p>}
      <div class="scroll" role="group" aria-label={props.label} tabIndex={0} ref={ref}>
        <table class={props.isCards === true ? "cards" : undefined}>
          <thead>
            <tr>
              {props.head.map((name, at) => (
                <th key={at} scope="col" class={props.nums?.includes(at) === true ? "num" : undefined}>
                  {name.startsWith("-") ? <span class="hidden-visually">{name.slice(1)}</span> : name}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>{props.children}</tbody>
        </table>
      </div>
    </>
  )
}

/** Shows the answer of a query, or why there is none. */
export function Answer<A>(props: {
  readonly query: { readonly data: A | null; readonly problem: string | null; readonly reload?: () => void }
  readonly children: (data: A) => ComponentChildren
}) {
  const { data, problem, reload } = props.query
  return (
    <>
      {problem !== null && <Problem text={problem} {...(reload === undefined ? {} : { retry: reload })} />}
      {data !== null ? props.children(data) : problem === null && <Loading />}
    </>
  )
}
