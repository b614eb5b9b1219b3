import type { Pages } from "./pages.ts"

export const Pager = (props: { readonly pages: Pages; readonly next: string | null; readonly isLoading: boolean }) => {
  const { next, pages } = props
  if (next === null && pages.number === 1) return null
  return (
    <nav class="row note" aria-label="Pages">
      <button type="button" class="button small" disabled={pages.number === 1} onClick={pages.first}>First page</button>
      <button type="button" class="button small" disabled={pages.number === 1} onClick={pages.previous}>
        Previous
      </button>
      <span>Page {pages.number}</span>
      <button
        type="button"
        class="button small"
        disabled={next === null || props.isLoading}
        onClick={() => next !== null && pages.next(next)}
      >
        Next
      </button>
    </nav>
  )
}
