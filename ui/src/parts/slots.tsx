/** Slots in use, as `3 of 16`; `?` where a process has not said so. A dead one uses none. */
export const Slots = (props: {
  readonly inUse: number | null
  readonly of: number | null
  readonly isAlive: boolean
}) =>
  props.isAlive
    ? <span class="nowrap">{props.inUse ?? "?"} of {props.of ?? "any"}</span>
    : <span class="zero">–</span>
