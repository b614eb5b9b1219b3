/**
 * All topics of the suite, in its order.
 */
export { atomicity } from "./atomicity.ts"
