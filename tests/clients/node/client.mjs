// Use the clients for Node as their users do, and print the results as JSON in the last line.
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { ChatOpenAI } from "@langchain/openai";
import { tool as langchainTool } from "@langchain/core/tools";
import { generateText, Output, streamText, tool } from "ai";
import OpenAI from "openai";
import { zodResponseFormat } from "openai/helpers/zod";
import { z } from "zod";

const baseURL = `${process.env.CAUSEWAY_URL}/v1`;
const apiKey = process.env.CAUSEWAY_KEY;
const question = "When is high water at Kelsay?";
const Tide = z.object({ place: z.string(), hour: z.number() });
const place = z.object({ place: z.string() });

async function openai() {
  const client = new OpenAI({ baseURL, apiKey, maxRetries: 0 });
  const messages = [{ role: "user", content: question }];
  const description = { name: "tide", description: "Say when high water is.", parameters: z.toJSONSchema(place) };
  const tools = [{ type: "function", function: description }];
  const first = await client.chat.completions.create({ model: "scripted", messages, tools });
  const [call] = first.choices[0].message.tool_calls;
  const conversation = [...messages, first.choices[0].message, { role: "tool", tool_call_id: call.id, content: "six" }];
  const after = await client.chat.completions.create({ model: "scripted", messages: conversation, tools });
  const streamed = await client.chat.completions
    .stream({ model: "scripted", messages, tools })
    .finalMessage();
  const parsed = await client.chat.completions.parse({
    model: "scripted",
    messages,
    response_format: zodResponseFormat(Tide, "tide"),
  });
  const models = [];
  for await (const model of client.models.list()) {
    models.push(model.id);
  }
  const vectors = await client.embeddings.create({ model: "all-minilm-l6-v2", input: ["tide", "high water"] });
  const error = await client.chat.completions
    .create({ model: "no-such-model", messages })
    .catch((thrown) => [thrown.constructor.name, thrown.status, thrown.requestID !== null]);
  return {
    tool: [call.function.name, JSON.parse(call.function.arguments)],
    after_tool: after.choices[0].message.content,
    streamed_tool: [streamed.tool_calls[0].function.name, JSON.parse(streamed.tool_calls[0].function.arguments)],
    parsed: parsed.choices[0].message.parsed,
    models,
    vectors: vectors.data.map(({ embedding }) => embedding.length),
    error,
  };
}

async function aiSdk() {
  const causeway = createOpenAICompatible({ name: "causeway", baseURL, apiKey, supportsStructuredOutputs: true });
  const tools = {
    tide: tool({ description: "Say when high water is.", inputSchema: place, execute: async () => "six" }),
  };
  const stopWhen = ({ steps }) => steps.length === 2;
  const model = causeway("scripted");
  const whole = await generateText({ model, prompt: question, tools, stopWhen });
  const stream = streamText({ model, prompt: question, tools, stopWhen });
  const streamed = await stream.text;
  const parsed = await generateText({ model, prompt: question, output: Output.object({ schema: Tide }) });
  return {
    tool: whole.steps[0].toolCalls.map(({ toolName, input }) => [toolName, input]),
    after_tool: whole.text,
    streamed_tool: (await stream.steps)[0].toolCalls.map(({ toolName, input }) => [toolName, input]),
    after_streamed_tool: streamed,
    parsed: parsed.output,
  };
}

async function langchain() {
  const chat = new ChatOpenAI({ model: "scripted", apiKey, configuration: { baseURL }, maxRetries: 0 });
  const tide = langchainTool(async () => "six", { name: "tide", description: "Say when.", schema: place });
  const message = await chat.bindTools([tide]).invoke(question);
  const parsed = await chat.withStructuredOutput(Tide, { method: "jsonSchema" }).invoke(question);
  return { tool: message.tool_calls.map(({ name, args }) => [name, args]), parsed };
}

const programs = { openai, aiSdk, langchain };
console.log(JSON.stringify(await programs[process.argv[2]]()));
