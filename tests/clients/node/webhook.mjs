// svix verifies a message as a receiver does, and the same message with another body.
import { Webhook } from "svix";
import { told } from "./told.mjs";

const { secret, body, headers } = told;
const message = new Webhook(secret).verify(body, headers);
let error = null;
try {
  new Webhook(secret).verify(body.replace("laptop", "laptip"), headers);
} catch (thrown) {
  error = thrown.constructor.name;
}
console.log(JSON.stringify({ message, error }));
