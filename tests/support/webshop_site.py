"""A web site laid out as the original's, over a shop of ours: every page's state is in its address, as there."""

import json
import threading
from contextlib import contextmanager
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, quote, unquote

from r3l.environments.webshop.nouns import title_words
from r3l.environments.webshop.reward import score

HEAD = (
    "<!DOCTYPE html>\n<html>\n  <head>\n    <title>WebShop</title>\n    <script>let x = '<b>';</script>\n  </head>\n "
    " <body>\n    <!-- a note -->\n"
)


def button(text, action):
    return (
        f'    <form method="post" action="{escape(action)}">\n      <button type="submit" class="btn">{escape(text)}'
        "</button>\n"
        "    </form>\n"
    )


class Site:
    """Renders the pages. `goals[n]` is the goal of sessions that end in _n."""

    def __init__(self, shop):
        self.shop = shop

    def respond(self, path, form):
        parts = [unquote(part) for part in path.strip("/").split("/")]
        session = parts[0] if len(parts) == 1 else parts[1]
        goal = self.shop.goals[int(session.rsplit("_", 1)[-1])]
        if len(parts) == 1:
            if form:
                return None, f"/search_results/{session}/{quote(form['search_query'][0].lower(), safe='')}/1"
            return self.search(session, goal), None
        return getattr(self, parts[0])(goal, *parts[1:]), None

    def heading(self, session, goal, *buttons):
        return (
            f'{HEAD}      <div id="instruction-text">\n        <h4>Instruction:<br>{escape(goal.instruction)}</h4>\n '
            "     </div>\n" + button("Back to Search", f"/{session}") + "".join(button(*pair) for pair in buttons)
        )

    def search(self, session, goal):
        return (
            f"{HEAD}      <h2>WebShop</h2>\n      <h4>Instruction: <br>{escape(goal.instruction)}</h4>\n"
            f'      <form method="post" action="/{session}">\n        <input id="search_input" type="text" required/>\n'
            '        <button class="btn" type="submit"><i class="glyphicon"></i>Search</button>\n      </form>\n  '
            "</body>\n</html>"
        )

    def search_results(self, goal, session, keywords, page):
        found, number = self.shop.cached_search(tuple(keywords.split(" "))), int(page)
        place = f"/search_results/{session}/{quote(keywords, safe='')}"
        items = "".join(
            '      <h4><a class="product-link" '
            f'href="{self.item_address(session, item.asin, keywords, page, {})}">{item.asin}</a></h5>\n'
            f"      <h4>{escape(item.title)}</h5>\n      <h5>{escape(item.price_text)}</h6>\n"
            for item in found[(number - 1) * 10 : number * 10]
        )
        turning = button("< Prev", f"{place}/{number - 1}") if number > 1 else ""
        return (
            self.heading(session, goal)
            + f"      <h3>Page {page} (Total results: {len(found)})</h3>\n"
            + turning
            + button("Next >", f"{place}/{number + 1}")
            + items
            + "  </body>\n</html>"
        )

    def item_address(self, session, asin, keywords, page, options):
        return f"/item_page/{session}/{asin}/" + "/".join(
            quote(part, safe="") for part in (keywords, str(page), json.dumps(options))
        )

    def item_page(self, goal, session, asin, keywords, page, options):
        item, chosen = self.shop.by_asin[asin], json.loads(options)
        groups = ""
        for name, values in item.options.items():
            groups += f'      <h4>{name}</h4>\n      <div class="radio-toolbar">\n'
            for place, value in enumerate(values):
                address = self.item_address(session, asin, keywords, page, {**chosen, name: value})
                groups += (
                    f'        <input type="radio" id="radio_{name}{place}" name="{name}" value="{escape(value)}" '
                    f'data-url="{address}">\n'
                    f'        <label for="radio_{name}{place}">{escape(value)}</label>\n'
                )
            groups += "      </div>\n"
        rest = "/".join(quote(part, safe="") for part in (keywords, page, options))
        subs = "".join(
            button(name, f"/item_sub_page/{session}/{asin}/{name}/{rest}")
            for name in ("Description", "Features", "Reviews")
        )
        back = ("< Prev", f"/search_results/{session}/{quote(keywords, safe='')}/{page}")
        return (
            self.heading(session, goal, back)
            + groups
            + f"      <h2>{escape(item.title)}</h2>\n      <h4>Price: {item.price_text}</h4>\n      <h4>Rating: "
            f"{item.rating}</h4>\n"
            + subs
            + button("Buy Now", f"/done/{session}/{asin}/{quote(options, safe='')}")
            + "  </body>\n</html>"
        )

    def item_sub_page(self, goal, session, asin, name, keywords, page, options):
        item, back = (
            self.shop.by_asin[asin],
            ("< Prev", self.item_address(session, asin, keywords, page, json.loads(options))),
        )
        if name == "Description":
            body = f'      <p class="product-info">{escape(item.description)}</p>\n'
        elif name == "Features":
            body = "".join(f'      <li><p class="product-info"> {escape(bullet)}</p></li>\n' for bullet in item.bullets)
        else:
            body = "".join(
                f'      <h4 class="blue-text">"{escape(review.title)}"</h4>\n      <p>\n        <span>{review.score}'
                "</span>\n"
                f'        <span class="fa"></span>\n      </p>\n      <p class="content">{escape(review.body)}</p>\n'
                for review in item.reviews
            )
        return self.heading(session, goal, back) + body + "  </body>\n</html>"

    def done(self, goal, session, asin, options):
        worth = score(self.shop.by_asin[asin], goal, list(json.loads(options).values()), title_words)
        return (
            f"{HEAD}      <h1>Thank you for shopping with us!</h1>\n      <h3>Your code: </h3>\n"
            f"      <p><pre>1A2B3C</pre> (Paste it.)</p>\n      <h4>attrs<pre>{goal.attributes}</pre></h4>\n"
            f'      <h4>Goal <div id="goal"><pre>SECRET {goal.product.asin}</pre></div></h4>\n'
            f'      <h3   id="reward">Your score (min 0.0, max 1.0)<pre>{worth.reward}</pre></h3>\n  </body>\n</html>'
        )


@contextmanager
def serving(shop):
    """The site's address; it ends with the block."""
    site = Site(shop)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.answer({})

        def do_POST(self):
            self.answer(parse_qs(self.rfile.read(int(self.headers.get("content-length") or 0)).decode()))

        def answer(self, form):
            try:
                page, location = site.respond(self.path, form)
            except (AttributeError, KeyError, ValueError, IndexError):
                self.send_error(500)
                return
            content = (page or "").encode()
            self.send_response(302 if location else 200)
            if location:
                self.send_header("location", location)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *arguments):
            pass

    listener = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=listener.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{listener.server_port}"
    finally:
        listener.shutdown()
        listener.server_close()
