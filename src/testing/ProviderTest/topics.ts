/**
 * All topics of the suite, in its order.
 */
export { atomicity } from "./atomicity.ts"
export { capabilityFiltering } from "./capabilityFiltering.ts"
export { customStatus } from "./customStatus.ts"
export { kvStore } from "./kvStore.ts"
export { sessions } from "./sessions.ts"
export { tagFiltering } from "./tagFiltering.ts"
