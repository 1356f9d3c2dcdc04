// Use clients of the Responses API as their users do, and print the results as JSON in the last line.
import { createOpenAI } from "@ai-sdk/openai";
import { generateText, streamText, tool } from "ai";
import OpenAI from "openai";
import { zodTextFormat } from "openai/helpers/zod";
import { z } from "zod";

const baseURL = `${process.env.CAUSEWAY_URL}/v1`;
const apiKey = process.env.CAUSEWAY_KEY;
const question = "When is high water at Kelsay?";
const renewed = "When will the pivot bearing be renewed?";
const search = { type: "file_search", vector_store_ids: ["handbook"] };
const Tide = z.object({ place: z.string(), hour: z.number() });
const place = z.object({ place: z.string() });

async function openai() {
  const client = new OpenAI({ baseURL, apiKey, maxRetries: 0 });
  const parameters = z.toJSONSchema(place);
  const tools = [{ type: "function", name: "tide", description: "Say when high water is.", strict: true, parameters }];
  const first = await client.responses.create({ model: "scripted", input: question, tools });
  const [call] = first.output;
  const input = [{ type: "function_call_output", call_id: call.call_id, output: "six" }];
  const previous_response_id = first.id;
  const after = await client.responses.create({ model: "scripted", input, tools, previous_response_id });
  const stream = client.responses.stream({ model: "scripted", input: question });
  const streamed = await stream.finalResponse();
  const format = zodTextFormat(Tide, "tide");
  const parsed = await client.responses.parse({ model: "scripted", input: question, text: { format } });
  const conversation = await client.conversations.create({ metadata: { topic: "tides" } });
  await client.responses.create({ model: "scripted", input: question, conversation: conversation.id });
  const roles = [];
  for await (const item of client.conversations.items.list(conversation.id, { order: "asc" })) {
    roles.push(item.role);
  }
  const read = await client.responses.retrieve(after.id);
  await client.responses.delete(after.id);
  const error = await client.responses.retrieve(after.id).catch((thrown) => [thrown.constructor.name, thrown.status]);
  return {
    tool: [call.name, JSON.parse(call.arguments)],
    after_tool: after.output_text,
    streamed: streamed.output_text,
    parsed: parsed.output_parsed,
    conversation: roles,
    read: read.output_text,
    error,
  };
}

async function background() {
  const { responses } = new OpenAI({ baseURL, apiKey, maxRetries: 0 });
  const request = { model: "extractive", input: renewed, tools: [search], background: true };
  let answer = await responses.create(request);
  const accepted = [answer.status, answer.background];
  while (answer.status === "queued" || answer.status === "in_progress") {
    await new Promise((done) => setTimeout(done, 50));
    answer = await responses.retrieve(answer.id);
  }
  const events = await all(await responses.retrieve(answer.id, { stream: true }));
  const again = [];
  for (const { sequence_number: starting_after } of events) {
    again.push(await all(await responses.retrieve(answer.id, { stream: true, starting_after })));
  }
  const begun = await responses.create({ model: "scripted", input: question, background: true });
  let cancelled;
  const seen = [];
  for await (const event of await responses.retrieve(begun.id, { stream: true })) {
    seen.push(event);
    if (event.type === "response.output_text.delta" && !cancelled) {
      cancelled = (await responses.cancel(begun.id)).status;
    }
  }
  const kept = await responses.retrieve(begun.id);
  return {
    accepted,
    polled: [answer.status, answer.output_text],
    numbers: events.map(({ sequence_number }) => sequence_number),
    ends: [events[0].type, events.at(-1).type],
    again: again.map((some, at) => JSON.stringify(some) === JSON.stringify(events.slice(at + 1))),
    cancelled,
    seen: [seen.at(-2).delta, seen.at(-1).type, seen.at(-1).response.status],
    kept: [kept.status, kept.output_text],
  };
}

async function all(stream) {
  const events = [];
  for await (const event of stream) {
    events.push(event);
  }
  return events;
}

async function aiSdk() {
  const causeway = createOpenAI({ baseURL, apiKey });
  const tools = {
    tide: tool({ description: "Say when high water is.", inputSchema: place, execute: async () => "six" }),
  };
  const stopWhen = ({ steps }) => steps.length === 2;
  const model = causeway("scripted");
  const first = await generateText({ model, prompt: question, tools, stopWhen });
  // The second turn names the items of the first by their ids.
  const messages = [
    { role: "user", content: question },
    ...first.response.messages,
    { role: "user", content: "And tomorrow?" },
  ];
  const stream = streamText({ model, messages, tools });
  return {
    tool: first.steps.flatMap(({ toolCalls }) => toolCalls.map(({ toolName, input }) => [toolName, input])),
    after_tool: first.text,
    second_turn: await stream.text,
  };
}

console.log(JSON.stringify(await { openai, background, aiSdk }[process.argv[2]]()));
