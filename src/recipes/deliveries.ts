export * as Delivery from "./Delivery.ts"
