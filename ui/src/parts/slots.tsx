/** Slots in use, as `3 of 16`; `?` where a process has not said so. */
export const Slots = (props: { readonly inUse: number | null; readonly of: number | null }) => (
  <span class="nowrap">{props.inUse ?? "?"} of {props.of ?? "any"}</span>
)
