import type { ComponentChildren } from "preact"
import { useEffect, useRef } from "preact/hooks"

/** A button that unfolds others. */
export const Menu = (props: {
  readonly label: string
  readonly children: ComponentChildren
}) => {
  const ref = useRef<HTMLDetailsElement>(null)
  useEffect(() => {
    const close = (event: Event) => {
      const details = ref.current
      if (details === null || !details.open) return
      if (event instanceof KeyboardEvent) {
        if (event.key !== "Escape") return
        details.querySelector("summary")?.focus()
      } else if (event.target instanceof Node && details.contains(event.target)) return
      details.open = false
    }
    document.addEventListener("click", close)
    document.addEventListener("keydown", close)
    document.addEventListener("scroll", close, { capture: true, passive: true })
    return () => {
      document.removeEventListener("click", close)
      document.removeEventListener("keydown", close)
      document.removeEventListener("scroll", close, { capture: true })
    }
  }, [])
  return (
    <details class="menu" ref={ref} onToggle={() => ref.current?.open === true && place(ref.current)}>
      <summary class="button">
        {props.label} <span aria-hidden="true">▾</span>
      </summary>
      <div class="items">{props.children}</div>
    </details>
  )
}

/** Fixed below its button, as a table that scrolls would cut it. */
const place = (details: HTMLDetailsElement) => {
  const items = details.querySelector<HTMLElement>(":scope > .items")
  if (items === null) return
  const { bottom, right, top } = details.getBoundingClientRect()
  const height = items.offsetHeight
  items.style.right = `${Math.max(8, document.documentElement.clientWidth - right)}px`
  items.style.top = `${bottom + height + 8 > window.innerHeight && top > height ? top - height - 4 : bottom + 4}px`
}

export const MenuItem = (props: {
  readonly text: string
  readonly note?: string | undefined
  readonly isDisabled?: boolean
  readonly isDanger?: boolean
  readonly onClick: () => void
}) => (
  <button
    type="button"
    class={props.isDanger === true ? "danger" : undefined}
    disabled={props.isDisabled === true}
    onClick={(event) => {
      const details = event.currentTarget.closest("details")
      if (details !== null) details.open = false
      // A dialog returns the focus to where it was: the button of the menu, as the item is hidden by then.
      details?.querySelector("summary")?.focus()
      props.onClick()
    }}
  >
    {props.text}
    {props.note !== undefined && <small>{props.note}</small>}
  </button>
)
