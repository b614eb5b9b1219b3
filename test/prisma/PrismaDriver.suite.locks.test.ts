import { suite } from "../utils/prismaSuite.ts"

suite("atomicity", "errorHandling", "instanceCreation", "instanceLocking", "lockExpiration")
