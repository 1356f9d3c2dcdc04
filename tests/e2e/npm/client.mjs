// Make one call of the npm client. The only argument is a JSON object that describes the call. Print the outcome as JSON.
import { AIChatProtocolClient } from "@microsoft/ai-chat-protocol";

const { endpoint, key, streamed, messages, options } = JSON.parse(process.argv[2]);
for (const message of messages) {
  // A File, as in a browser. Under Node, the client fails if it gets bytes instead.
  message.files = message.files?.map(({ name, contentType, base64 }) => ({
    contentType,
    data: new File([Buffer.from(base64, "base64")], name),
  }));
}
const client = new AIChatProtocolClient(
  endpoint,
  { key },
  { allowInsecureConnection: true, retryOptions: { maxRetries: 0 }, credentials: { apiKeyHeaderName: "api-key" } },
);
const outcome = {};
try {
  if (streamed) {
    outcome.lines = [];
    for await (const line of await client.getStreamedCompletion(messages, options)) {
      outcome.lines.push(line);
    }
  } else {
    outcome.answer = await client.getCompletion(messages, options);
  }
} catch (error) {
  outcome.error = { code: error.code, message: error.message };
}
console.log(JSON.stringify(outcome));
