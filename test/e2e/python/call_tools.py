"""LangChain's MCP adapters, as their documentation shows them: load the tools of a server and call some.

Writes, for each transport: the number of tools, the arguments of one, the result of a call, a failure, and a prompt.
"""

import asyncio
import json
import os
import sys

from langchain_mcp_adapters.client import MultiServerMCPClient

KEY = os.environ["LANGSMITH_API_KEY"]
NODE, PROGRAM = sys.argv[1:]


def text_of(result):
    """The text of a result: a string, or the first of a list of content blocks."""
    return result if isinstance(result, str) else result[0]["text"]


async def use(client, name):
    tools = {tool.name: tool for tool in await client.get_tools(server_name=name)}
    runs = await tools["fetch_runs"].ainvoke({"project_name": "adapters", "limit": 1, "page_number": 1})
    projects = await tools["list_projects"].ainvoke({"limit": 5, "more_info": "false"})
    try:
        failure = text_of(await tools["read_dataset"].ainvoke({"dataset_name": "none"}))
    except Exception as error:  # The adapters raise results that have isError set.
        failure = str(error)
    async with client.session(name) as session:
        resources = await session.list_resources()
    prompt = await client.get_prompt(name, "greeting", arguments={"name": "Ada"})
    return {
        "tools": len(tools),
        "arguments": sorted(tools["fetch_runs"].args),
        "runs": json.loads(text_of(runs)),
        "projects": json.loads(text_of(projects)),
        "failure": failure,
        "resources": len(resources.resources),
        "prompt": [message.content for message in prompt],
    }


async def main():
    client = MultiServerMCPClient(
        {
            "http": {
                "transport": "streamable_http",
                "url": os.environ["TOOLS_URL"],
                "headers": {"LANGSMITH-API-KEY": KEY},
            },
            "stdio": {
                "transport": "stdio",
                "command": NODE,
                "args": [PROGRAM, "tools", "--stdio"],
                "env": {"LANGSMITH_API_KEY": KEY, "LANGSMITH_ENDPOINT": os.environ["LANGSMITH_ENDPOINT"]},
            },
        }
    )
    print(json.dumps({name: await use(client, name) for name in ("http", "stdio")}))


asyncio.run(main())
