from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ms_tune.cli.main import main
from tests.memory.reports import LLAMA, QWEN_8B, QWEN_TINY
from tests.memory.test_torch_report import saved
from tests.pools.test_torch_replay import NPU
from tests.pools.torch_recordings import Program
from tests.readers.samples import folder

if TYPE_CHECKING:
    from tests.browser.conftest import Browser


@pytest.fixture(scope="module")
def page(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Browser:
    """Open the report of the 8B run once."""
    return _opened(browser, tmp_path_factory.mktemp("page"), "memory", str(folder(QWEN_8B)))


def _opened(browser: Browser, folder: Path, *command: str) -> Browser:
    path = folder / "report.html"
    main([*command, "--html", str(path), "--lang", "en"])
    browser.open(path)
    return browser


def _mouse(page: Browser) -> Any:  # noqa: ANN401 - Selenium is optional
    return import_module("selenium.webdriver").ActionChains(page.driver, duration=20)


def _over(page: Browser) -> Any:  # noqa: ANN401 - Selenium is optional
    return page.driver.find_element("css selector", ".u-over")


def _clean(page: Browser) -> None:
    assert page.console() == []
    # Chromium's own page of a new tab requests its parts, sometimes while the report is already open.
    assert {address.split(":", 1)[0] for address in page.requested()} <= {"file", "chrome-untrusted"}
    assert len(page.requested()) <= 1


def test_it_opens_clean_and_shows_the_peak(page: Browser) -> None:
    _clean(page)
    assert "15.99 GiB" in page.text("facts")
    assert page.text("live-title").startswith("Live blocks at tick 43,685: 1,221 blocks, 15.99 GiB")
    assert page.run("State.blocks.count") == 97143
    assert page.run("State.blocks.curve.used.reduce((a, b) => Math.max(a, b))") == 17166286336
    assert page.run("liveAt(State.blocks, 43685).reduce((a, b) => a + State.blocks.size[b], 0)") == 17166286336


def test_it_paints_soon(page: Browser) -> None:
    paints = page.run("performance.getEntriesByType('paint').map((entry) => entry.startTime)")
    assert paints


def test_hover_shows_the_block(page: Browser) -> None:
    page.run("look(-Infinity, Infinity)")
    over = _over(page)
    _mouse(page).move_to_element_with_offset(over, 100, over.size["height"] // 2 - 20).perform()
    page.wait("!document.getElementById('tip').hidden")
    tip = page.text("tip")
    assert "weights" in tip
    assert "allocated" in tip


def test_zoom_by_dragging_and_wheel_and_back(page: Browser) -> None:
    page.run("look(-Infinity, Infinity)")
    whole = page.run("range()")
    over = _over(page)
    _mouse(page).move_to_element_with_offset(over, -200, 0).click_and_hold().move_by_offset(150, 0).release().perform()
    zoomed = page.run("range()")
    assert zoomed[1] - zoomed[0] < (whole[1] - whole[0]) / 2
    page.driver.execute_script(
        "arguments[0].dispatchEvent(new WheelEvent('wheel', {deltaY: -100, bubbles: true, cancelable: true}))", over
    )
    closer = page.run("range()")
    assert closer[1] - closer[0] < zoomed[1] - zoomed[0]
    page.driver.find_element("id", "go-all").click()
    assert page.run("range()") == whole


def test_shift_and_drag_moves(page: Browser) -> None:
    page.run("look(100000, 150000)")
    over = _over(page)
    shift = import_module("selenium.webdriver.common.keys").Keys.SHIFT
    _mouse(page).move_to_element(over).key_down(shift).click_and_hold().move_by_offset(120, 0).release().key_up(
        shift
    ).perform()
    low, high = page.run("range()")
    assert low < 99000
    assert high - low == pytest.approx(50000)


def test_click_freezes_a_moment(page: Browser) -> None:
    page.run("look(-Infinity, Infinity)")
    _mouse(page).move_to_element(_over(page)).click().perform()
    tick = page.run("State.tick")
    assert tick != 43685
    assert f"Live blocks at tick {tick:,}" in page.text("live-title")
    assert f"tick {tick:,}" in page.text("flame-title")
    assert f"tick {tick:,}" in page.text("map-title")
    page.driver.find_element("id", "go-peak").click()
    assert page.run("State.tick") == 43685


def test_search(page: Browser) -> None:
    field = page.driver.find_element("id", "search")
    field.send_keys("linear_fc1.weight")
    page.wait("document.getElementById('matches').textContent.startsWith('36 blocks match')")
    field.clear()
    field.send_keys("nothing like it")
    page.wait("document.getElementById('matches').textContent.startsWith('0 blocks match')")
    page.run("(document.getElementById('search').value = '', State.search = '', mark())")


def test_one_category_alone(page: Browser) -> None:
    page.run("freeze(43685)")
    activations = (
        "[...document.querySelectorAll('#legend button')].find((key) => key.textContent.startsWith('activations'))"
    )
    page.run(f"{activations}.click()")
    assert page.text("matches").startswith("295 blocks match, 6.01 GiB")
    page.run(f"{activations}.click()")
    assert page.text("matches") == ""


def test_what_holds_the_peak_and_what_theory_says(page: Browser) -> None:
    assert "optimizer state 27 %" in page.text("make-up")
    widths = page.run(
        "[...document.querySelectorAll('#make-up i')].reduce((sum, part) => sum + parseFloat(part.style.width), 0)"
    )
    assert widths == pytest.approx(100, abs=0.1)
    assert "4.39 GiB4.39 GiB1.00" in page.text("theory")
    assert "largest request that fits in a hole" in page.text("facts")
    assert "558.3 MiB" in page.text("facts")


def test_it_fits_a_narrow_window(page: Browser) -> None:
    page.driver.set_window_size(500, 900)
    try:
        page.wait(
            "document.documentElement.scrollWidth <= innerWidth && document.querySelector('.u-over').clientWidth < 480"
        )
    finally:
        page.driver.set_window_size(1400, 1800)
        page.wait("document.querySelector('.u-over').clientWidth > 900")


def test_moving_about_does_not_stall(page: Browser) -> None:
    took = page.run(
        "[0, 1, 2, 3, 4].map((n) => { const begin = performance.now(); look(5e4 * n, 5e4 * n + 6e4); return performance.now() - begin; })"
    )
    assert sum(took) < 2000  # milliseconds; some tens on a quiet machine
    page.run("look(-Infinity, Infinity)")


def test_flame_graph_zooms_and_changes(page: Browser) -> None:
    boxes = page.run("document.querySelectorAll('#flame .f').length")
    assert boxes > 50
    assert "15.99 GiB" in page.text("flame")
    page.run(
        "[...document.querySelectorAll('#flame .f')].find((box) => box.title.startsWith('layers-CellList')).click()"
    )
    assert page.run("State.zoomed.at(-1)") == "layers-CellList"
    assert "27-TransformerLayer" in page.text("flame")
    page.driver.find_element("id", "flame-stack").click()
    assert page.run("State.flame") == "stack"
    page.driver.find_element("id", "flame-layer").click()


def test_address_map_agrees_with_the_analysis(page: Browser) -> None:
    page.run("freeze(43685)")
    assert "Free: 1.00 GiB, largest hole: 558.3 MiB" in page.text("map-hint")
    total = page.run("stretches(State.blocks, 43685).reduce((sum, each) => sum + each.to - each.from, 0)")
    assert total == 18243866624


def test_language_switches(page: Browser) -> None:
    button = page.driver.find_element("id", "language")
    button.click()
    assert page.run("document.documentElement.lang") == "zh"
    assert "峰值" in page.text("facts")
    assert "优化器状态" in page.text("legend")
    button.click()
    assert "peak" in page.text("facts")


def test_still_clean_after_all_that(page: Browser) -> None:
    _clean(page)


def test_several_ranks(browser: Browser, tmp_path: Path) -> None:
    page = _opened(browser, tmp_path, "memory", str(folder(QWEN_TINY)))
    assert page.run("document.querySelectorAll('#ranks-nav button').length") == 2
    page.run("document.querySelectorAll('#ranks tr.go')[1].click()")
    page.wait("State.place === 1 && State.blocks !== null")
    assert "19.6 MiB" in page.text("facts")
    assert "stage 1" in page.text("ranks")
    _clean(page)


def test_findings_and_stacks_of_the_dynamic_graph(browser: Browser, tmp_path: Path) -> None:
    page = _opened(browser, tmp_path, "memory", str(folder(LLAMA)))
    assert "MSM201" in page.text("findings")
    assert "drop references" in page.text("findings")
    assert "MatMulExt" in page.text("late")
    page.run("document.getElementById('flame-stack').click()")
    assert "llama.py:58" in page.text("flame")
    _clean(page)


def test_comparison(browser: Browser, tmp_path: Path) -> None:
    place = folder(QWEN_TINY)
    page = _opened(browser, tmp_path, "memory", "diff", str(place / "rank_0"), str(place / "rank_4"))
    assert "−3.6 MiB" in page.text("compare")
    assert page.run("document.querySelectorAll('#compare .stripe').length") == 2
    _clean(page)


def test_names_cannot_become_markup(browser: Browser, tmp_path: Path) -> None:
    evil = "</script><img src=x onerror=alert(1)><!--"
    source = (folder("asc2") / "memory_block.csv").read_text(encoding="utf-8")
    (tmp_path / "memory_block.csv").write_text(source.replace(",Dense,", f",{evil},"), encoding="utf-8")
    page = _opened(browser, tmp_path, "memory", str(tmp_path / "memory_block.csv"))
    page.run("(State.search = 'onerror', drawLive())")
    assert "onerror=alert(1)><!--" in page.text("live")
    assert page.run("document.querySelectorAll('img').length") == 0
    _clean(page)


def _search(page: Browser, text: str) -> None:
    page.driver.execute_script(
        "const box = document.getElementById('search'); box.value = arguments[0]; box.dispatchEvent(new Event('input'))",
        text,
    )
    page.wait("State.found !== null" if text else "State.found === null")


def test_code_in_c_shows_no_place_of_a_block(page: Browser) -> None:
    frames = "[['/job/train.py', 3, 'main'], ['Modules/main.c', 5, 'Py_Main'], ['??', 0, 'at::empty']]"
    assert page.run(f"tellingFrame({frames})") == ["/job/train.py", 3, "main"]
    assert page.run("tellingFrame([['??', 0, 'clone']])") is None


def test_a_search_marks_blocks_in_every_picture_of_a_snapshot(browser: Browser, tmp_path: Path) -> None:
    snapshot = saved(Program(NPU, seed=5).run(), tmp_path / "s.pickle")
    page = _opened(browser, tmp_path, "memory", str(snapshot))
    _clean(page)
    assert "replayed exactly" in page.text("facts")
    plain = page.run("$('map').toDataURL()")
    _search(page, "train.py:12")
    found = page.run("State.found.reduce((a, b) => a + b, 0)")
    assert 0 < found < page.run("State.blocks.count")
    assert page.text("matches").startswith("1 block matches, 4.0 MiB")
    assert page.run("$('map').toDataURL()") != plain
    faint = "[...document.querySelectorAll('.f')].filter((box) => box.style.opacity).length"
    assert 0 < page.run(faint) < page.run("document.querySelectorAll('.f').length")
    page.run("$('language').click()")
    assert page.run("State.found.reduce((a, b) => a + b, 0)") == found
    _search(page, "")
    page.run("$('language').click()")
    assert page.run(faint) == 0
    _clean(page)


def test_a_snapshot_without_a_history_is_about_one_moment(browser: Browser, tmp_path: Path) -> None:
    snapshot = saved(Program(NPU, seed=5).run(), tmp_path / "s.pickle", device_traces=[[]])
    page = _opened(browser, tmp_path, "memory", str(snapshot))
    _clean(page)
    assert page.text("make-up").startswith("Memory by category at the time of the snapshot")
    assert page.text("live-title").startswith("Live blocks at the time of the snapshot: ")
    assert page.text("map-title") == "Address map at the time of the snapshot"
    assert page.run("$('over-time').hidden && $('remedies').hidden")
    shown = str(page.run("document.querySelector('main').innerText"))
    assert "peak" not in shown
    assert "event -1" not in shown
    assert "never" not in shown
