"""The MCP server and the handlers of its requests."""

from collections.abc import Callable
from typing import Any

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import Server
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from servicekit.errors import CausewayError, NotFound

from gateway.dialects.mcp import tools
from gateway.dialects.mcp.agent_request import AgentRequest
from gateway.dialects.mcp.calls import Calls, client_message
from gateway.dialects.mcp.resources import Resources

_RESOURCE_NOT_FOUND = -32002
"""The error code of a missing resource in protocol versions before 2026-07-28, which uses `INVALID_PARAMS`."""
_INSTRUCTIONS = (
    "Documents of an organisation. Use search to find passages and fetch to read more of a document. Cite the url "
    "of each source that you use. ask returns a complete answer with citations."
)

_Context = ServerRequestContext[Any, Any]
AgentRequestOf = Callable[[Any], AgentRequest]
"""Returns the `AgentRequest` of an HTTP request."""


def mcp_server(calls: Calls, resources: Resources, agent_request_of: AgentRequestOf, version: str) -> Server[Any]:
    """Return the server of all front ends. The profile of each request selects its tools and prompts.

    Args:
        calls: Runs the tools.
        resources: Lists and reads documents.
        agent_request_of: Returns the `AgentRequest` of an HTTP request.
        version: The version of Causeway.
    """
    handlers = _Handlers(calls, resources, agent_request_of)
    server: Server[Any] = Server(
        "causeway",
        version=version,
        title="Causeway",
        instructions=_INSTRUCTIONS,
        get_tool_input_schema=tools.input_schema,
        on_list_tools=handlers.list_tools,
        on_call_tool=handlers.call_tool,
        on_list_resources=handlers.list_resources,
        on_list_resource_templates=handlers.list_resource_templates,
        on_read_resource=handlers.read_resource,
        on_list_prompts=handlers.list_prompts,
        on_get_prompt=handlers.get_prompt,
    )
    # The gateway already has a span for each request and each step.
    server.middleware.clear()
    return server


class _Handlers:
    """Handles the requests of agents.

    Args:
        calls: Runs the tools.
        resources: Lists and reads documents.
        agent_request_of: Returns the `AgentRequest` of an HTTP request.
    """

    def __init__(self, calls: Calls, resources: Resources, agent_request_of: AgentRequestOf) -> None:
        self._calls = calls
        self._resources = resources
        self._agent_request_of = agent_request_of

    async def list_tools(
        self, ctx: _Context, _params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        """Return the tools that the profile offers."""
        offered = self._agent_request_of(ctx.request).frontend.agents.tools
        return types.ListToolsResult(tools=[tool for tool in tools.DEFINITIONS if tool.name in offered])

    async def call_tool(self, ctx: _Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        """Call a tool."""
        agent = self._agent_request_of(ctx.request)
        if params.name not in agent.frontend.agents.tools:
            raise MCPError(types.INVALID_PARAMS, f"Unknown tool: {params.name[:200]!r}.")
        return await self._calls.call(agent, params.name, params.arguments or {}, ctx.session.report_progress)

    async def list_resources(
        self, ctx: _Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        """Return a page of the documents."""
        agent = self._agent_request_of(ctx.request)
        try:
            listed, cursor = await self._resources.page(agent, (params and params.cursor) or "")
        except Exception as error:  # the agent receives a protocol error for any exception
            raise _failure(error, agent, ctx.protocol_version) from error
        return types.ListResourcesResult(resources=listed, next_cursor=cursor or None)

    async def list_resource_templates(
        self, _ctx: _Context, _params: types.PaginatedRequestParams | None
    ) -> types.ListResourceTemplatesResult:
        """Return the template of documents' URIs."""
        return types.ListResourceTemplatesResult(resource_templates=self._resources.templates())

    async def read_resource(
        self, ctx: _Context, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        """Return a part of a document's text."""
        agent = self._agent_request_of(ctx.request)
        try:
            return types.ReadResourceResult(contents=[await self._resources.read(agent, str(params.uri))])
        except Exception as error:  # the agent receives a protocol error for any exception
            raise _failure(error, agent, ctx.protocol_version) from error

    async def list_prompts(
        self, ctx: _Context, _params: types.PaginatedRequestParams | None
    ) -> types.ListPromptsResult:
        """Return the profile's prompts."""
        prompts = self._agent_request_of(ctx.request).frontend.agents.prompts
        return types.ListPromptsResult(
            prompts=[
                types.Prompt(
                    name=prompt.name,
                    title=prompt.title or None,
                    description=prompt.description or None,
                    arguments=[
                        types.PromptArgument(
                            name=argument.name,
                            description=argument.description or None,
                            required=argument.required,
                        )
                        for argument in prompt.arguments
                    ],
                )
                for prompt in prompts.values()
            ]
        )

    async def get_prompt(self, ctx: _Context, params: types.GetPromptRequestParams) -> types.GetPromptResult:
        """Return a prompt with its arguments."""
        prompt = self._agent_request_of(ctx.request).frontend.agents.prompts.get(params.name)
        if prompt is None:
            raise MCPError(types.INVALID_PARAMS, f"Unknown prompt: {params.name[:200]!r}.")
        values = params.arguments or {}
        for argument in prompt.arguments:
            if argument.required and argument.name not in values:
                raise MCPError(types.INVALID_PARAMS, f"The argument {argument.name!r} is missing.")
        text = types.TextContent(text=prompt.fill(values))
        return types.GetPromptResult(
            description=prompt.description or None, messages=[types.PromptMessage(role="user", content=text)]
        )


def _failure(error: Exception, agent: AgentRequest, protocol_version: str) -> MCPError:
    """Return the protocol error of a failed resource request. Only a tool call can return an error as a result."""
    if isinstance(error, NotFound) and protocol_version not in MODERN_PROTOCOL_VERSIONS:
        code = _RESOURCE_NOT_FOUND
    else:
        code = types.INVALID_PARAMS if isinstance(error, CausewayError) else types.INTERNAL_ERROR
    return MCPError(code, client_message(error, agent))
