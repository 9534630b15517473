"""Uses the stock client langchain-auth as its documentation says, and prints what it got as JSON."""

import asyncio
import json
import os

from langchain_auth import Client


async def main() -> None:
    client = Client(api_key=os.environ["LANGSMITH_API_KEY"], api_url=os.environ["LANGSMITH_API_URL"])
    provider = await client.create_oauth_provider(
        provider_id="mail",
        name="Mail",
        client_id=os.environ["CLIENT_ID"],
        client_secret=os.environ["CLIENT_SECRET"],
        auth_url=os.environ["AUTH_URL"],
        token_url=os.environ["TOKEN_URL"],
    )
    result = await client.authenticate(provider="mail", scopes=["mail.read"], user_id="anna")
    # The test opens the URL as the user does.
    print(json.dumps({"url": result.url}), flush=True)
    completed = await client.wait_for_completion(result.auth_id, timeout=30)
    again = await client.authenticate(provider="mail", scopes=["mail.read"], user_id="anna")
    mine = await client.check_token_exists("mail")
    revoked = await client.revoke_tokens("mail")
    updated = await client.update_oauth_provider("mail", name="Post")
    listed = await client.list_oauth_providers()
    deleted = await client.delete_oauth_provider("mail")
    found = {
        "provider": provider.provider_id,
        "uses_pkce": provider.uses_pkce,
        "statuses": [result.status, completed.status, again.status],
        "same_token": completed.token == again.token and bool(again.token),
        "mine": mine.has_token,
        "revoked": revoked.provider_id,
        "updated": updated.name,
        "listed": [each.provider_id for each in listed],
        "deleted": deleted.message,
    }
    print(json.dumps(found), flush=True)


asyncio.run(main())
