/** A module that cannot be loaded. */
throw new Error("STRIPE_KEY is not set")
